//! Each fault of a token that a person gives, and of an EdgeRouter by itself: told, withheld from
//! the pod, and healed once it is mended.

use api::reasons::{self, types};
use api::{EdgeRouter, names};
use serde_json::{Value, json};
use ziti::token::EnrollmentToken;

use crate::credentials::admin_token;
use crate::edge_router::edge_router;
use crate::operator::Operator;
use crate::world::World;
use crate::ziti_network::{self as network, NETWORK};

/// The spec of an EdgeRouter whose token stands under `token` in the Secret of its name.
fn provided(name: &str, network_ref: Option<&str>) -> Value {
    let mut object = json!({"metadata": {"name": name}, "spec": {"enrollment": {"provided":
        {"secretKeyRef": {"name": format!("{name}-given"), "key": "token"}}}}});
    if let Some(network) = network_ref {
        object["spec"]["networkRef"] = json!({"name": network});
    }
    object
}

/// A token as Ziti makes them, signed by nobody: for what is judged before the signature.
fn unsigned(claims: &Value) -> String {
    use base64::Engine;
    let encode =
        |json: &Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json.to_string());
    format!(
        "{}.{}.c2lnbmVk",
        encode(&json!({"alg": "ES256"})),
        encode(claims)
    )
}

struct Fault {
    name: &'static str,
    network: Option<&'static str>,
    /// What the Secret holds; none: there is no Secret.
    given: Option<Value>,
    reason: &'static str,
    says: &'static [&'static str],
}

#[tokio::test]
async fn every_fault_of_a_provided_token_is_told_and_heals_when_a_good_one_is_given() {
    let (controller, other) = tokio::join!(network::shared_controller(), network::own_controller());
    let world = World::new("bad-tokens").await;
    network::connect(&world, &controller).await;
    let ziti = network::admin(&controller);
    let elsewhere = network::register(&network::admin(&other), "elsewhere", json!({})).await;
    let spent = network::register(&ziti, "bad-tokens-spent", json!({})).await;
    let spent_token = network::token_of(&spent);
    crate::player::redeem(&EnrollmentToken::parse(&spent_token).unwrap()).await;
    let claims = |exp: u64, ctrls: Value| {
        unsigned(
            &json!({"em": "erott", "iss": "https://127.0.0.1:9", "sub": "r", "jti": "j",
            "exp": exp, "ctrls": ctrls}),
        )
    };
    let faults = [
        Fault {
            name: "malformed",
            network: Some(NETWORK),
            given: Some(json!({"token": "eyJhbGci.broken"})),
            reason: reasons::TOKEN_MALFORMED,
            says: &["key token of Secret malformed-given", "not a JWT"],
        },
        Fault {
            name: "another-kind",
            network: Some(NETWORK),
            given: Some(json!({"token": admin_token(&ziti, "bad-tokens-identity").await})),
            reason: reasons::TOKEN_MALFORMED,
            says: &["another-kind-given", "another kind (ott)"],
        },
        Fault {
            name: "another-network",
            network: Some(NETWORK),
            given: Some(json!({"token": network::token_of(&elsewhere)})),
            reason: reasons::TOKEN_OF_ANOTHER_NETWORK,
            says: &["this network", "give"],
        },
        Fault {
            name: "spent",
            network: Some(NETWORK),
            given: Some(json!({"token": spent_token})),
            reason: reasons::TOKEN_SPENT,
            says: &["bad-tokens-spent", "have a new token made"],
        },
        Fault {
            name: "no-key",
            network: Some(NETWORK),
            given: Some(json!({"jwt": "elsewhere"})),
            reason: reasons::KEY_MISSING,
            says: &["Secret no-key-given", "no key token", "add the token"],
        },
        Fault {
            name: "no-secret",
            network: None,
            given: None,
            reason: reasons::SOURCE_MISSING,
            says: &["Secret no-secret-given", "create it"],
        },
        Fault {
            name: "expired",
            network: None,
            given: Some(json!({"token": claims(1, json!(["tls:127.0.0.1:9"]))})),
            reason: reasons::TOKEN_EXPIRED,
            says: &["have a new one made"],
        },
        Fault {
            name: "no-controllers",
            network: None,
            given: Some(json!({"token": claims(4_000_000_000, json!([]))})),
            reason: reasons::INVALID_SPEC,
            says: &["spec.controlPlane.endpoints"],
        },
    ];
    let _operator = Operator::start(&world);
    for fault in &faults {
        let secret = format!("{}-given", fault.name);
        if let Some(given) = &fault.given {
            world.secret(&secret, given.clone()).await;
        }
        world
            .create::<EdgeRouter>(provided(fault.name, fault.network))
            .await;
    }
    for fault in &faults {
        let told = world
            .told::<EdgeRouter>(fault.name, types::ENROLLED, "False", fault.reason)
            .await;
        for word in fault.says {
            assert!(
                told.contains(word),
                "{}: {told:?} should say {word:?}",
                fault.name
            );
        }
        world
            .told::<EdgeRouter>(fault.name, types::READY, "False", fault.reason)
            .await;
        let enrollment = names::enrollment_secret(fault.name);
        let kept = world.secret_value(&enrollment, names::TOKEN_KEY).await;
        assert!(
            kept.unwrap_or_default().is_empty(),
            "{} is withheld",
            fault.name
        );
    }
    for fault in &faults {
        let name = format!("bad-tokens-{}-mended", fault.name);
        let good = network::token_of(&network::register(&ziti, &name, json!({})).await);
        let secret = format!("{}-given", fault.name);
        world.secret(&secret, json!({"token": good})).await;
        world
            .told::<EdgeRouter>(fault.name, types::ENROLLED, "False", reasons::TOKEN_READY)
            .await;
        assert_eq!(world.token(fault.name).await, good);
    }
}

#[tokio::test]
async fn an_edge_router_says_what_is_wrong_around_it_and_heals() {
    let controller = network::shared_controller().await;
    let world = World::new("bad-around").await;
    let spec = network::prepare(&world, &controller).await;
    world
        .secret("bad-around-foreign-enrollment", json!({"token": "mine"}))
        .await;
    let _operator = Operator::start(&world);
    for name in ["bad-around-a", "bad-around-foreign"] {
        world
            .create::<EdgeRouter>(edge_router(name, json!({})))
            .await;
    }
    let bad_name = edge_router("bad-around-name", json!({"name": "back\\slash"}));
    world.create::<EdgeRouter>(bad_name).await;
    let told = world
        .told::<EdgeRouter>(
            "bad-around-a",
            types::REGISTERED,
            "False",
            reasons::NETWORK_NOT_FOUND,
        )
        .await;
    assert!(
        told.contains("ZitiNetwork network") && told.contains("create it"),
        "{told}"
    );
    network::create(&world, spec).await;
    world
        .told::<EdgeRouter>(
            "bad-around-a",
            types::REGISTERED,
            "True",
            reasons::REGISTERED,
        )
        .await;

    let told = world
        .told::<EdgeRouter>(
            "bad-around-name",
            types::REGISTERED,
            "False",
            reasons::NAME_INVALID,
        )
        .await;
    assert!(told.contains("Choose another spec.name"), "{told}");

    // A Secret that somebody else made is neither written nor read.
    let told = world
        .told::<EdgeRouter>(
            "bad-around-foreign",
            types::ENROLLED,
            "False",
            reasons::SOURCE_INVALID,
        )
        .await;
    assert!(told.contains("bad-around-foreign-enrollment") && told.contains("delete or rename"));
    let foreign = world
        .secret_value("bad-around-foreign-enrollment", "token")
        .await;
    assert_eq!(foreign.as_deref(), Some("mine"));
    world
        .delete::<k8s_openapi::api::core::v1::Secret>("bad-around-foreign-enrollment")
        .await;
    world
        .told::<EdgeRouter>(
            "bad-around-foreign",
            types::ENROLLED,
            "False",
            reasons::TOKEN_READY,
        )
        .await;
}
