//! Each fault in what a ZitiNetwork is made of has a reason that does not change, a sentence that
//! names the object and what to do, and heals once it is mended, without a restart.

use api::ZitiNetwork;
use api::reasons::{self, types};
use serde_json::{Value, json};
use testbed::ziti::LocalController;

use crate::credentials::admin_token;
use crate::operator::Operator;
use crate::world::World;
use crate::ziti_network as network;

/// One fault: a ZitiNetwork, the objects that it names, and how they are mended.
struct Fault {
    name: &'static str,
    /// What differs in the spec; the rest is as it should be.
    spec: Value,
    /// Secrets and ConfigMaps that are there from the beginning.
    made: Vec<Value>,
    reason: &'static str,
    /// What the sentence names.
    says: &'static [&'static str],
    /// Objects that mend it.
    mended: Vec<Value>,
    /// Changes of the spec that mend it.
    respec: Option<Value>,
}

fn secret(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn trust(name: &str) -> Value {
    json!({"trust": {"configMap": {"name": name, "key": "ca.crt"}}})
}

fn credential(kind: &str, name: &str) -> Value {
    json!({"credential": {kind: {"name": name}}})
}

fn trust_faults(ca: &str, other_ca: &str) -> Vec<Fault> {
    let whole = |name| vec![config_map(name, &json!({"ca.crt": ca}))];
    vec![
        Fault {
            name: "wrong-ca",
            spec: trust("wrong-ca"),
            made: vec![config_map("wrong-ca", &json!({"ca.crt": other_ca}))],
            reason: reasons::CONTROLLER_NOT_TRUSTED,
            says: &["check spec.trust"],
            mended: whole("wrong-ca"),
            respec: None,
        },
        Fault {
            name: "no-map",
            spec: trust("no-map"),
            made: vec![],
            reason: reasons::SOURCE_MISSING,
            says: &["ConfigMap no-map", "spec.trust.configMap", "create it"],
            mended: whole("no-map"),
            respec: None,
        },
        Fault {
            name: "no-ca-secret",
            spec: json!({"trust": {"secret": {"name": "no-ca-secret", "key": "ca.crt"}}}),
            made: vec![],
            reason: reasons::SOURCE_MISSING,
            says: &["Secret no-ca-secret", "spec.trust.secret", "create it"],
            mended: vec![secret("no-ca-secret", &json!({"ca.crt": ca}))],
            respec: None,
        },
        Fault {
            name: "no-ca-key",
            spec: trust("no-ca-key"),
            made: vec![config_map("no-ca-key", &json!({"tls.crt": ca}))],
            reason: reasons::KEY_MISSING,
            says: &["ConfigMap no-ca-key", "no key ca.crt", "add it"],
            mended: whole("no-ca-key"),
            respec: None,
        },
        Fault {
            name: "not-pem",
            spec: trust("not-pem"),
            made: vec![config_map("not-pem", &json!({"ca.crt": "of iron"}))],
            reason: reasons::SOURCE_INVALID,
            says: &["key ca.crt of ConfigMap not-pem", "spec.trust"],
            mended: whole("not-pem"),
            respec: None,
        },
    ]
}

fn credential_faults(spent: &str, fresh: &str) -> Vec<Fault> {
    let login =
        json!({"username": LocalController::USERNAME, "password": LocalController::PASSWORD});
    let token =
        |name: &str| json!({"credential": {"enrollmentToken": {"name": name, "key": "jwt"}}});
    vec![
        Fault {
            name: "bad-password",
            spec: credential("password", "bad-password"),
            made: vec![secret(
                "bad-password",
                &json!({"username": "admin", "password": "guess"}),
            )],
            reason: reasons::BAD_CREDENTIALS,
            says: &["spec.credential", "check the Secret"],
            mended: vec![secret("bad-password", &login)],
            respec: None,
        },
        Fault {
            name: "no-login",
            spec: credential("password", "no-login"),
            made: vec![],
            reason: reasons::SOURCE_MISSING,
            says: &["Secret no-login", "spec.credential.password", "create it"],
            mended: vec![secret("no-login", &login)],
            respec: None,
        },
        Fault {
            name: "half-login",
            spec: credential("password", "half-login"),
            made: vec![secret("half-login", &json!({"username": "admin"}))],
            reason: reasons::KEY_MISSING,
            says: &["Secret half-login", "no key password", "add it"],
            mended: vec![secret("half-login", &login)],
            respec: None,
        },
        Fault {
            name: "no-certificate",
            spec: credential("clientCertificate", "no-certificate"),
            made: vec![secret(
                "no-certificate",
                &json!({"tls.crt": "none", "tls.key": "none"}),
            )],
            reason: reasons::SOURCE_INVALID,
            says: &["spec.credential"],
            mended: vec![secret("no-certificate-after-all", &login)],
            respec: Some(json!({"credential": {"clientCertificate": null,
                "password": {"name": "no-certificate-after-all"}}})),
        },
        Fault {
            name: "no-token",
            spec: token("no-token"),
            made: vec![secret("no-token", &json!({"jwt": "eyJ.not.one"}))],
            reason: reasons::SOURCE_INVALID,
            says: &["spec.credential.enrollmentToken"],
            mended: vec![secret("no-token", &json!({"jwt": fresh}))],
            respec: None,
        },
        Fault {
            name: "spent-token",
            spec: token("spent-token"),
            made: vec![secret("spent-token", &json!({"jwt": spent}))],
            reason: reasons::TOKEN_SPENT,
            says: &["new one-time token"],
            mended: vec![secret("spent-token-after-all", &login)],
            respec: Some(json!({"credential": {"enrollmentToken": null,
                "password": {"name": "spent-token-after-all"}}})),
        },
    ]
}

#[tokio::test]
async fn every_fault_of_a_network_is_told_and_heals_when_mended() {
    let (controller, other) = tokio::join!(network::shared_controller(), network::own_controller());
    let world = World::new("bad-network").await;
    let good = network::prepare(&world, &controller).await;
    let ziti = network::admin(&controller);
    let (spent, fresh) = (
        admin_token(&ziti, "bad-network-spent").await,
        admin_token(&ziti, "bad-network-fresh").await,
    );
    spend(&spent).await;
    let mut faults = trust_faults(controller.ca_pem(), other.ca_pem());
    faults.extend(credential_faults(&spent, &fresh));
    faults.push(Fault {
        name: "nobody-there",
        // The discard port: nothing listens there.
        spec: json!({"managementApi": ["https://127.0.0.1:9"]}),
        made: vec![],
        reason: reasons::CONTROLLER_UNREACHABLE,
        says: &["127.0.0.1:9", "tried again"],
        mended: vec![],
        respec: Some(json!({"managementApi": [controller.url()]})),
    });

    let _operator = Operator::start(&world);
    for fault in &faults {
        for object in &fault.made {
            testbed::kubernetes::apply(&world.client, object.clone(), &world.namespace)
                .await
                .unwrap();
        }
        let mut spec = good.clone();
        for (key, value) in fault.spec.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let object = json!({"metadata": {"name": fault.name}, "spec": spec});
        world.create::<ZitiNetwork>(object).await;
    }
    for fault in &faults {
        let told = world
            .told::<ZitiNetwork>(fault.name, types::READY, "False", fault.reason)
            .await;
        for word in fault.says {
            assert!(
                told.contains(word),
                "{}: {told:?} should say {word:?}",
                fault.name
            );
        }
    }
    for fault in faults {
        for object in fault.mended {
            testbed::kubernetes::apply(&world.client, object, &world.namespace)
                .await
                .unwrap();
        }
        if let Some(spec) = fault.respec {
            world
                .patch::<ZitiNetwork>(fault.name, json!({"spec": spec}))
                .await;
        }
        world
            .told::<ZitiNetwork>(fault.name, types::READY, "True", reasons::READY)
            .await;
    }
}

/// Redeems an administrator's token, so that it is spent.
async fn spend(token: &str) {
    let token = ziti::token::EnrollmentToken::parse(token).unwrap();
    let key = ziti::pki::Key::generate().unwrap();
    ziti::enroll::enroll_identity(&token, &key, None, crate::world::PATIENCE)
        .await
        .unwrap();
}
