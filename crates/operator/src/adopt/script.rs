//! The steps of a takeover, as a shell script. Pure: facts in, text out.
//!
//! The order matters. The registration is taken over first, while the router
//! runs, so that nobody mistakes it for one without an owner. The volume's claim
//! is there before the ZitiRouter is: a member without a volume counts as one
//! that has lost its identity.

use super::release::Release;
use anyhow::{Context, Result, ensure};
use api::names;
use api::router::TunnelMode;
use plan::set::member::{claim_name, labels};
use plan::set::service::host;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use ziti::management::EdgeRouterEntity;

/// The edge port of a ZitiRouter that names none.
const EDGE_PORT: u16 = 3022;

/// What the router becomes.
pub(super) struct Target {
    pub(super) network: String,
    pub(super) name: String,
}

/// The steps, or why the router cannot be taken over as it is.
pub(super) fn script(
    release: &Release,
    router: &EdgeRouterEntity,
    target: &Target,
) -> Result<String> {
    let member = format!("{}-0", target.name);
    sound(release, router, &member)?;
    let mode = mode(release, router)?;
    let parts = Parts {
        release,
        router,
        target,
        member: &member,
        mode,
    };
    let (ns, volume) = (&release.namespace, &release.volume.name);
    let (deployment, claim) = (&release.deployment, &release.claim);
    let (new_claim, set) = (claim_name(&member), &target.name);
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").context("writing the script");
    line("#!/bin/sh".to_owned())?;
    line(format!(
        "# Takes router {:?} (id {}) from Deployment {ns}/{deployment} over into ZitiRouter {ns}/{set}.\n\
         # It keeps its id, its certificate, its policies and its volume.",
        router.name, router.id
    ))?;
    for note in parts.notes() {
        line(format!("# Note: {note}"))?;
    }
    line("set -eu\n".to_owned())?;
    line("# 1. The volume outlives its claim.".to_owned())?;
    line(format!(
        "kubectl patch pv {volume} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'\n"
    ))?;
    line("# 2. The operator takes over the registration, while the router runs.".to_owned())?;
    line(apply(ns, &parts.edge_router())?)?;
    line(format!(
        "kubectl wait -n {ns} edgerouter/{member} --for=condition=Registered --timeout=2m\n"
    ))?;
    line("# 3. The router stops: it is offline from here to step 6.".to_owned())?;
    line(format!(
        "kubectl scale -n {ns} deployment/{deployment} --replicas=0\n"
    ))?;
    line("# 4. The volume is set free. Deleting the claim waits for the pod to end.".to_owned())?;
    line(format!("kubectl delete -n {ns} pvc/{claim} --timeout=5m"))?;
    line(format!(
        "kubectl patch pv {volume} --type=json -p '[{{\"op\":\"remove\",\"path\":\"/spec/claimRef\"}}]'\n"
    ))?;
    line("# 5. It becomes the new member's.".to_owned())?;
    line(apply(ns, &parts.claim(&new_claim))?)?;
    line(format!(
        "kubectl wait -n {ns} pvc/{new_claim} --for=jsonpath='{{.status.phase}}'=Bound --timeout=2m\n"
    ))?;
    line("# 6. The router starts again, on the identity that is on the volume.".to_owned())?;
    line(apply(ns, &parts.zitirouter())?)?;
    line(format!(
        "kubectl wait -n {ns} zitirouter/{set} --for=condition=Ready --timeout=5m\n"
    ))?;
    line(format!(
        "# 7. When nobody dials the old Services any more, remove what the chart made:\n\
         #    helm uninstall {deployment} -n {ns}"
    ))?;
    if release.volume.reclaim_policy != "Retain" {
        line(format!(
            "#    and, for the volume to go with its claim as it would have:\n\
             #    kubectl patch pv {volume} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"{}\"}}}}'",
            release.volume.reclaim_policy
        ))?;
    }
    Ok(out)
}

/// What must hold before a router can be taken over without enrolling it anew.
fn sound(release: &Release, router: &EdgeRouterEntity, member: &str) -> Result<()> {
    let name = &router.name;
    ensure!(
        router.is_verified,
        "router {name} (id {}) has never been enrolled, so it has no identity to take over: make a ZitiRouter, and delete the \
         Deployment",
        router.id
    );
    let owner = router.tags.get(names::TAG_NAME).and_then(Value::as_str);
    ensure!(
        owner.is_none(),
        "router {name} (id {}) belongs to EdgeRouter {} already",
        router.id,
        owner.unwrap_or_default()
    );
    let host = host(member, &release.namespace);
    let mut dns = release.config.dns.clone();
    if !dns.contains(&host) {
        dns.push(host.clone());
        anyhow::bail!(
            "the router's certificate does not hold {host}, under which the new member is reached, and Ziti starts no router \
             that advertises a name which is not in its certificate. Let the router as it is renew its certificate with that \
             name first, and call this again:\n  helm upgrade {} openziti/ziti-router -n {} --reuse-values --set 'csr.sans.dns={{{}}}'\n\
             The chart restarts the router with --extend, which renews the certificate; its id stays",
            release.deployment,
            release.namespace,
            dns.join(",")
        );
    }
    Ok(())
}

/// The tunnel's mode. It must agree with what the network permits: taking that
/// away destroys the router's identity for services.
fn mode(release: &Release, router: &EdgeRouterEntity) -> Result<String> {
    let mode = match &release.config.tunnel_mode {
        Some(mode) => mode.clone(),
        None if router.is_tunneler_enabled => "host".to_owned(),
        None => "none".to_owned(),
    };
    serde_json::from_value::<TunnelMode>(mode.clone().into()).with_context(|| {
        format!(
            "the router runs in tunnel mode {mode}, which this version of the API does not have"
        )
    })?;
    Ok(mode)
}

fn apply(namespace: &str, object: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(object).context("writing an object as YAML")?;
    Ok(format!(
        "kubectl apply -n {namespace} -f - <<'EOF'\n{}\nEOF",
        text.trim_end()
    ))
}

/// The objects.
struct Parts<'a> {
    release: &'a Release,
    router: &'a EdgeRouterEntity,
    target: &'a Target,
    member: &'a str,
    mode: String,
}

impl Parts<'_> {
    fn version() -> String {
        format!("{}/{}", api::GROUP, api::VERSION)
    }

    /// What of the router's registration the new objects repeat, so that nothing
    /// of it changes: policies go by it.
    fn registration(&self) -> Map<String, Value> {
        let mut spec = Map::new();
        spec.insert(
            "networkRef".to_owned(),
            json!({"name": self.target.network}),
        );
        spec.insert("adoptionPolicy".to_owned(), "ByName".into());
        if !self.router.role_attributes.is_empty() {
            let attributes = self.router.role_attributes.clone();
            spec.insert("roleAttributes".to_owned(), attributes.into());
        }
        if self.router.cost != 0 {
            spec.insert("cost".to_owned(), self.router.cost.into());
        }
        if self.router.no_traversal {
            spec.insert("noTraversal".to_owned(), true.into());
        }
        spec
    }

    fn edge_router(&self) -> Value {
        let mut labels = labels(&self.target.name);
        labels.insert(names::LABEL_MEMBER.to_owned(), self.member.to_owned());
        let mut spec = self.registration();
        spec.insert("name".to_owned(), self.router.name.clone().into());
        spec.insert("tunnelerEnabled".to_owned(), (self.mode != "none").into());
        json!({
            "apiVersion": Self::version(), "kind": "EdgeRouter",
            "metadata": {"name": self.member, "namespace": self.release.namespace, "labels": labels},
            "spec": spec,
        })
    }

    fn claim(&self, name: &str) -> Value {
        let volume = &self.release.volume;
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": self.release.namespace,
                "labels": labels(&self.target.name),
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                // None is another thing than none given.
                "storageClassName": volume.class.as_deref().unwrap_or_default(),
                "volumeName": volume.name,
                "resources": {"requests": {"storage": volume.size}},
            },
        })
    }

    fn zitirouter(&self) -> Value {
        let release = self.release;
        let mut spec = self.registration();
        spec.insert("replicas".to_owned(), 1.into());
        spec.insert("tunnel".to_owned(), json!({"mode": self.mode}));
        if let Some(port) = release.config.edge_port.filter(|port| *port != EDGE_PORT) {
            spec.insert("edge".to_owned(), json!({"port": port}));
        }
        if let Some(image) = &release.image {
            spec.insert("image".to_owned(), image.clone().into());
        }
        if let Some(resources) = &release.resources {
            let resources = serde_json::to_value(resources).unwrap_or_default();
            if resources.as_object().is_some_and(|map| !map.is_empty()) {
                spec.insert("resources".to_owned(), resources);
            }
        }
        let own = [
            host(self.member, &release.namespace),
            "localhost".to_owned(),
        ];
        let mut sans = Map::new();
        let keep = |names: &[String], own: &[String]| -> Vec<String> {
            names
                .iter()
                .filter(|name| !own.contains(name))
                .cloned()
                .collect()
        };
        let dns = keep(&release.config.dns, &own);
        let ip = keep(&release.config.ip, &["127.0.0.1".to_owned()]);
        if !dns.is_empty() {
            sans.insert("dns".to_owned(), dns.into());
        }
        if !ip.is_empty() {
            sans.insert("ip".to_owned(), ip.into());
        }
        if !sans.is_empty() {
            spec.insert("csr".to_owned(), json!({"sans": sans}));
        }
        let mut claim = json!({"size": release.volume.size});
        if let Some(class) = &release.volume.class {
            claim["storageClassName"] = class.clone().into();
        }
        spec.insert(
            "identityStorage".to_owned(),
            json!({"persistentVolumeClaim": claim}),
        );
        json!({
            "apiVersion": Self::version(), "kind": "ZitiRouter",
            "metadata": {"name": self.target.name, "namespace": release.namespace},
            "spec": spec,
        })
    }

    /// What the reader should know beforehand.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.router.is_online {
            notes.push("the network does not see the router online now".to_owned());
        }
        if !self.router.tags.is_empty() {
            let keys: Vec<&String> = self.router.tags.keys().collect();
            // As a list of quoted strings: whoever named them may not write here.
            notes.push(format!(
                "its tags {keys:?} are replaced by the operator's own"
            ));
        }
        notes.push(format!(
            "clients learn the new address {} from the network; what dials the chart's Services by name must follow",
            host(self.member, &self.release.namespace)
        ));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::super::release::{Config, Volume};
    use super::*;

    fn release() -> Release {
        Release {
            namespace: "ziti".to_owned(),
            deployment: "legacy".to_owned(),
            image: None,
            resources: None,
            claim: "legacy".to_owned(),
            volume: Volume {
                name: "pvc-1".to_owned(),
                class: None,
                size: "50Mi".to_owned(),
                reclaim_policy: "Delete".to_owned(),
            },
            config: Config {
                dns: vec!["edge-0.ziti.svc".to_owned()],
                ..Config::default()
            },
        }
    }

    fn target() -> Target {
        Target {
            network: "sea".to_owned(),
            name: "edge".to_owned(),
        }
    }

    fn router(additions: &Value) -> EdgeRouterEntity {
        let mut row = json!({"id": "r1", "name": "legacy", "isVerified": true});
        for (key, value) in additions.as_object().unwrap() {
            row[key] = value.clone();
        }
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn names_on_the_network_are_no_commands() {
        let evil = "x\nEOF\nrm -rf /\n$(reboot)";
        let router = router(&json!({"name": evil, "roleAttributes": [evil], "tags": {evil: evil}}));
        let script = script(&release(), &router, &target()).unwrap();
        let (mut inside, mut commands) = (false, Vec::new());
        for line in script.lines() {
            match line {
                "EOF" => inside = false,
                line if inside || line.starts_with('#') || line.is_empty() => {}
                line => {
                    inside = line.ends_with("<<'EOF'");
                    commands.push(line);
                }
            }
        }
        let ours = |line: &&str| line.starts_with("kubectl ") || *line == "set -eu";
        assert!(commands.iter().all(ours), "{commands:#?}");
        assert!(!inside);
    }

    #[test]
    fn what_cannot_be_taken_over_is_said() {
        let refused = |release: &Release, additions: Value| {
            let answer = script(release, &router(&additions), &target());
            format!("{:#}", answer.unwrap_err())
        };
        let told = refused(&release(), json!({"isVerified": false}));
        assert!(told.contains("never been enrolled"), "{told}");
        let told = refused(&release(), json!({"tags": {names::TAG_NAME: "other"}}));
        assert!(told.contains("belongs to EdgeRouter other"), "{told}");
        let mut elsewhere = release();
        elsewhere.config.dns = vec!["old".to_owned()];
        let told = refused(&elsewhere, json!({}));
        assert!(
            told.contains("csr.sans.dns={old,edge-0.ziti.svc}"),
            "{told}"
        );
        let mut unknown = release();
        unknown.config.tunnel_mode = Some("teleport".to_owned());
        let told = refused(&unknown, json!({}));
        assert!(told.contains("tunnel mode teleport"), "{told}");
    }
}
