//! The Certificates that a `ZitiController` has, as they should be.

use super::super::Facts;
use super::super::config::names_of;
use super::super::pki::{holders, spiffe};
use super::super::render::{labels, metadata, name_of};
use super::Role;
use crate::set::extra::{CERTIFICATE, dynamic};
use api::controller::IssuerRef;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Two for each member; none where there is no issuer, or no cert-manager.
pub(in super::super) fn wanted(facts: &Facts) -> Vec<DynamicObject> {
    let issuer = facts.object.spec.pki.issuer_ref.as_ref();
    let installed = facts.issuer.as_ref().is_some_and(|issuer| issuer.installed);
    let Some(issuer) = issuer.filter(|_| installed) else {
        return Vec::new();
    };
    holders(facts)
        .flat_map(|(ordinal, member)| {
            [
                certificate(facts, issuer, ordinal, &member),
                signer(facts, issuer, &member),
            ]
        })
        .flatten()
        .collect()
}

/// The member's own, for both ends of a connection: a new key each time.
fn certificate(
    facts: &Facts,
    issuer: &IssuerRef,
    ordinal: i32,
    member: &str,
) -> Option<DynamicObject> {
    let object = facts.object;
    let (ips, dns): (Vec<String>, Vec<String>) = names_of(object, ordinal)
        .into_iter()
        .partition(|name| name.parse::<IpAddr>().is_ok());
    let mut spec = common(object.spec.pki.certificate_days, issuer);
    spec["commonName"] = json!(member);
    spec["dnsNames"] = json!(dns);
    spec["ipAddresses"] = json!(ips);
    spec["uris"] = json!([spiffe(&object.trust_domain(), member)]);
    spec["usages"] = json!([
        "digital signature",
        "key encipherment",
        "server auth",
        "client auth"
    ]);
    spec["privateKey"]["rotationPolicy"] = json!("Always");
    whole(facts, Role::Certificate, member, spec)
}

/// What it signs with for those who enroll. The key stays, so that what it has
/// signed stays good.
fn signer(facts: &Facts, issuer: &IssuerRef, member: &str) -> Option<DynamicObject> {
    let mut spec = common(facts.object.spec.pki.signer_days, issuer);
    spec["commonName"] = json!(format!("{member} signer"));
    spec["isCA"] = json!(true);
    spec["usages"] = json!(["cert sign", "crl sign"]);
    spec["privateKey"]["rotationPolicy"] = json!("Never");
    whole(facts, Role::Signer, member, spec)
}

/// Renewed when a third of its life is left, as what we sign ourselves.
fn common(days: i32, issuer: &IssuerRef) -> Value {
    let hours = i64::from(days) * 24;
    json!({
        "duration": format!("{hours}h0m0s"),
        "renewBefore": format!("{}h0m0s", hours / 3),
        "privateKey": {"algorithm": "ECDSA", "size": 256, "encoding": "PKCS8"},
        "issuerRef": issuer,
    })
}

fn whole(facts: &Facts, role: Role, member: &str, mut spec: Value) -> Option<DynamicObject> {
    let name = role.name(member);
    spec["secretName"] = json!(name);
    // By its labels the Secret is seen to change, and found.
    spec["secretTemplate"] = json!({"labels": labels(name_of(facts.object))});
    let resource = CERTIFICATE.resource();
    dynamic(&json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata(facts.object, &name),
        "spec": spec,
    }))
}
