//! The rules of ZitiController, as the API server keeps them.

use api::ZitiController;
use serde_json::json;

use crate::rules::{TAKEN, on_creation, refused};
use crate::world::World;

#[tokio::test]
async fn what_is_said_of_the_apis() {
    let world = World::new("controller-rules").await;
    let web = |web| json!({"web": web});
    let cases = vec![
        (
            "all of it",
            web(json!({
                "options": {
                    "idleTimeout": "30s", "readTimeout": "500ms", "writeTimeout": "2m",
                    "minTLSVersion": "TLS1.2", "maxTLSVersion": "TLS1.3",
                },
                "altServerCerts": [{"secretRef": {"name": "public"}}],
                "metrics": {},
            })),
            TAKEN,
        ),
        (
            "no version is left",
            web(json!({"options": {"minTLSVersion": "TLS1.3", "maxTLSVersion": "TLS1.2"}})),
            refused("minTLSVersion must not be above maxTLSVersion"),
        ),
        (
            "a version that nobody should speak",
            web(json!({"options": {"minTLSVersion": "TLS1.0"}})),
            refused("Unsupported value"),
        ),
        (
            "a time without a unit",
            web(json!({"options": {"idleTimeout": "30"}})),
            refused("should match"),
        ),
        (
            "no time",
            web(json!({"options": {"readTimeout": "0s"}})),
            refused("should match"),
        ),
        (
            "the port of the APIs",
            web(json!({"metrics": {"port": 1280}})),
            refused("1280 is the port of the APIs"),
        ),
        (
            "that of the sidecar",
            web(json!({"metrics": {"port": 10090}})),
            refused("10090 that of the sidecar"),
        ),
        (
            "that of backups",
            web(json!({"metrics": {"port": 10091}})),
            refused("10091 that of backups"),
        ),
        (
            "a certificate in no Secret",
            web(json!({"altServerCerts": [{}]})),
            refused("secretRef"),
        ),
    ];
    on_creation::<ZitiController>(&world, cases).await;
}
