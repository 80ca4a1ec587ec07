//! The way back of a takeover: a shell function that undoes the steps, from
//! whichever of them it got to. Pure. Only [`super::script`] uses it.
//!
//! Both of our objects are told to leave the router on the network before they
//! are deleted, and nothing of the volume goes with its claim (the first step saw
//! to that).

use super::release::Release;
use super::script::{Target, apply, set_free};
use anyhow::Result;
use plan::set::member::claim_name;
use serde_json::{Value, json};

/// The function, and the line that calls it.
pub(super) fn function(release: &Release, target: &Target, member: &str) -> Result<String> {
    let (ns, set) = (&release.namespace, &target.name);
    let (deployment, claim) = (&release.deployment, &release.claim);
    let (volume, new_claim) = (&release.volume.name, claim_name(member));
    let mut lines = vec!["back() {".to_owned()];
    for object in [format!("zitirouter/{set}"), format!("edgerouter/{member}")] {
        let retain = r#"{"spec":{"deletionPolicy":"Retain"}}"#;
        // The deletion must not begin before that is known.
        lines.push(format!(
            "if kubectl get -n {ns} {object} --ignore-not-found -o name | grep -q .; then"
        ));
        lines.push(format!(
            "kubectl patch -n {ns} {object} --type=merge -p '{retain}'"
        ));
        lines.push(format!("kubectl delete -n {ns} {object} --timeout=5m"));
        lines.push("fi".to_owned());
    }
    lines.push(format!(
        "kubectl delete -n {ns} pvc/{new_claim} --ignore-not-found --timeout=5m"
    ));
    lines.push(format!(
        "if ! kubectl get -n {ns} pvc/{claim} --ignore-not-found -o name | grep -q .; then"
    ));
    lines.push(set_free(volume));
    lines.push(apply(ns, &old_claim(release))?);
    lines.push("fi".to_owned());
    for (service, selector) in &release.services {
        let patch = json!([{"op": "replace", "path": "/spec/selector", "value": selector}]);
        lines.push(format!(
            "kubectl patch -n {ns} service/{service} --type=json -p '{patch}'"
        ));
    }
    lines.push(format!(
        "kubectl scale -n {ns} deployment/{deployment} --replicas=1"
    ));
    if release.volume.reclaim_policy != "Retain" {
        let policy =
            json!({"spec": {"persistentVolumeReclaimPolicy": release.volume.reclaim_policy}});
        lines.push(format!(
            "kubectl wait -n {ns} pvc/{claim} --for=jsonpath='{{.status.phase}}'=Bound --timeout=2m"
        ));
        lines.push(format!("kubectl patch pv {volume} -p '{policy}'"));
    }
    lines.push("}".to_owned());
    lines.push("if [ \"${1-}\" = back ]; then back; exit; fi\n".to_owned());
    Ok(lines.join("\n"))
}

/// The claim as the chart had made it.
fn old_claim(release: &Release) -> Value {
    let volume = &release.volume;
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": release.claim, "namespace": release.namespace,
            "labels": release.claim_labels, "annotations": release.claim_annotations,
        },
        "spec": {
            "accessModes": volume.access_modes,
            "storageClassName": volume.class.as_deref().unwrap_or_default(),
            "volumeName": volume.name,
            "resources": {"requests": {"storage": volume.size}},
        },
    })
}
