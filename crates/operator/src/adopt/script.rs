//! The steps of a takeover, as a shell script. Pure: facts in, text out. What the
//! steps apply is in [`super::objects`].
//!
//! The order matters. The registration is taken over first, while the router
//! runs, so that nobody mistakes it for one without an owner. The volume's claim
//! is there before the ZitiRouter is: a member without a volume counts as one
//! that has lost its identity. And the ZitiRouter is tried before anything is
//! stopped.

use super::objects::Parts;
use super::release::Release;
use super::way_back;
use anyhow::{Context, Result, ensure};
use api::names;
use plan::set::member::claim_name;
use serde_json::{Value, json};
use std::fmt::Write;
use ziti::management::EdgeRouterEntity;

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
    let parts = Parts::new(release, router, target, &member)?;
    let (ns, volume) = (&release.namespace, &release.volume.name);
    let (deployment, claim) = (&release.deployment, &release.claim);
    let (new_claim, set) = (claim_name(&member), &target.name);
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").context("writing the script");
    line("#!/bin/sh".to_owned())?;
    line(format!(
        "# Takes router {:?} (id {}) from Deployment {ns}/{deployment} over into ZitiRouter {ns}/{set}.\n\
         # It keeps its id, its key, its policies and its volume.",
        router.name, router.id
    ))?;
    for note in parts.notes() {
        line(format!("# Note: {note}"))?;
    }
    line("set -eu\n".to_owned())?;
    line(format!(
        "zitirouter() {{\n{}\n}}\n",
        heredoc("cat", &parts.zitirouter()?)?
    ))?;
    line(way_back::function(release, target, &member)?)?;
    line("# 1. What is to be is tried first, and the volume outlives its claim.".to_owned())?;
    line(format!(
        "zitirouter | kubectl apply -n {ns} --dry-run=server -f -"
    ))?;
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
    line(set_free(volume) + "\n")?;
    line(
        "# 5. It becomes the new member's, and so do the Services that led to the old pod."
            .to_owned(),
    )?;
    line(apply(ns, &parts.claim(&new_claim))?)?;
    line(format!(
        "kubectl wait -n {ns} pvc/{new_claim} --for=jsonpath='{{.status.phase}}'=Bound --timeout=2m"
    ))?;
    // By what the operator's own Service finds the pod.
    let selector = json!({"statefulset.kubernetes.io/pod-name": member});
    let patch = json!([{"op": "replace", "path": "/spec/selector", "value": selector}]);
    for service in release.services.keys() {
        line(format!(
            "kubectl patch -n {ns} service/{service} --type=json -p '{patch}'"
        ))?;
    }
    line("\n# 6. The router starts again, on the identity that is on the volume.".to_owned())?;
    line(format!("zitirouter | kubectl apply -n {ns} -f -"))?;
    line(format!(
        "kubectl wait -n {ns} zitirouter/{set} --for=condition=Ready --timeout=5m\n"
    ))?;
    line(farewell(release, &parts))?;
    Ok(out)
}

/// What is left to do by hand, in comments.
fn farewell(release: &Release, parts: &Parts) -> String {
    let (ns, deployment) = (&release.namespace, &release.deployment);
    let mut out = String::from(
        "# Until then, `sh` with this file and the word `back` undoes it all, from whichever step on.\n\
         # 7. Later, remove what the chart made.",
    );
    if parts.keeps_names() {
        let service = parts.service_host();
        let _ = write!(
            out,
            " Its Services and Ingresses go with it, so first lead the advertised\n\
             #    names to Service {service} by other ways (spec.edge.expose makes them), or take spec.edge.advertise\n\
             #    and spec.link.advertise out: the router then tells the network {service}, and renews its certificate.\n\
             #    No `helm upgrade` meanwhile: it would lead the Services back and start the old pod."
        );
    }
    let _ = write!(out, "\n#    helm uninstall {deployment} -n {ns}");
    if release.volume.reclaim_policy != "Retain" {
        let _ = write!(
            out,
            "\n#    and, for the volume to go with its claim as it would have:\n\
             #    kubectl patch pv {} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"{}\"}}}}'",
            release.volume.name, release.volume.reclaim_policy
        );
    }
    out
}

/// Take the old claim's mark off the volume, if it has one.
pub(super) fn set_free(volume: &str) -> String {
    format!("kubectl patch pv {volume} --type=merge -p '{{\"spec\":{{\"claimRef\":null}}}}'")
}

/// What must hold before a router can be taken over without enrolling it anew.
fn sound(release: &Release, router: &EdgeRouterEntity, member: &str) -> Result<()> {
    let name = &router.name;
    let modes = &release.volume.access_modes;
    ensure!(
        modes.iter().any(|mode| mode != "ReadOnlyMany"),
        "claim {} of the router's volume has the access modes {modes:?}: routers renew their certificates in place and must be \
         able to write. Copy the identity to a volume that can be written, start the router on that, and call this again",
        release.claim
    );
    ensure!(
        router.is_verified,
        "router {name} (id {}) has never been enrolled, so it has no identity to take over: make a ZitiRouter, and delete the \
         Deployment",
        router.id
    );
    let owner = router.tags.get(names::TAG_NAME).and_then(Value::as_str);
    // Tags of this very member are left where somebody went the way back.
    ensure!(
        owner.is_none_or(|owner| owner == member),
        "router {name} (id {}) belongs to EdgeRouter {} already",
        router.id,
        owner.unwrap_or_default()
    );
    Ok(())
}

pub(super) fn apply(namespace: &str, object: &Value) -> Result<String> {
    heredoc(&format!("kubectl apply -n {namespace} -f -"), object)
}

/// A command that is given an object.
fn heredoc(command: &str, object: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(object).context("writing an object as YAML")?;
    Ok(format!("{command} <<'EOF'\n{}\nEOF", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::release::{Config, Listener, Tunnel, Volume};
    use super::*;

    fn release() -> Release {
        let selector = [("app".to_owned(), "legacy".to_owned())].into();
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
                access_modes: vec!["ReadWriteOnce".to_owned()],
            },
            config: Config {
                dns: vec!["edge-0.ziti.svc".to_owned()],
                ..Config::default()
            },
            host_network: false,
            pod: serde_json::Map::new(),
            services: [("legacy-edge".to_owned(), selector)].into(),
            claim_labels: [("app".to_owned(), "legacy".to_owned())].into(),
            claim_annotations: std::collections::BTreeMap::new(),
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
        let ours = |line: &&str| {
            let known = ["set -eu", "zitirouter() {", "cat <<'EOF'", "}"];
            let of_way_back = [
                "back() {",
                "if kubectl get ",
                "if ! kubectl get ",
                "fi",
                "if [ \"${1-}\" = back ]; then back; exit; fi",
            ];
            known.contains(line)
                || of_way_back.iter().any(|known| line.starts_with(known))
                || line.starts_with("kubectl ")
                || line.starts_with("zitirouter | kubectl apply ")
        };
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
        let mut unknown = release();
        let mut tunnel = |mode: &str| {
            unknown.config.tunnel = Some(Tunnel {
                mode: mode.to_owned(),
                ..Tunnel::default()
            });
            refused(&unknown, json!({}))
        };
        let told = tunnel("teleport");
        assert!(told.contains("tunnel mode teleport"), "{told}");
        let told = tunnel("proxy");
        assert!(told.contains("lists no services"), "{told}");
    }

    /// What a shell makes of the script with these arguments: the calls of kubectl.
    fn calls(args: &[&str]) -> Vec<String> {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let text = script(&release(), &router(&json!({})), &target()).unwrap();
        std::fs::write(at("adopt.sh"), text).unwrap();
        // It finds our objects, and not the old claim.
        let kubectl = "#!/bin/sh\necho \"$*\" >> \"$LOG\"\ncase \"$*\" in get*pvc*) ;; get*) echo found ;; esac\n";
        std::fs::write(at("kubectl"), kubectl).unwrap();
        let may_run = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(at("kubectl"), may_run).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let output = std::process::Command::new("sh")
            .arg(at("adopt.sh"))
            .args(args)
            .env("PATH", format!("{}:{path}", dir.path().display()))
            .env("LOG", at("log"))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        let log = std::fs::read_to_string(at("log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_way_back_leaves_the_router_on_the_network_and_restores_its_claim() {
        let there = calls(&[]);
        assert!(
            there
                .iter()
                .any(|call| call.contains("scale -n ziti deployment/legacy --replicas=0"))
        );
        assert!(
            !there.iter().any(|call| call.contains("deletionPolicy")),
            "{there:#?}"
        );

        let back = calls(&["back"]);
        let at = |words: &str| {
            let found = back.iter().position(|call| call.contains(words));
            found.unwrap_or_else(|| panic!("no {words} in {back:#?}"))
        };
        let retained = at(
            r#"patch -n ziti zitirouter/edge --type=merge -p {"spec":{"deletionPolicy":"Retain"}}"#,
        );
        assert!(retained < at("delete -n ziti zitirouter/edge"));
        let gone = at("delete -n ziti edgerouter/edge-0");
        assert!(at("patch -n ziti edgerouter/edge-0") < gone);
        assert!(gone < at("delete -n ziti pvc/identity-edge-0"));
        let free = at(r#"patch pv pvc-1 --type=merge -p {"spec":{"claimRef":null}}"#);
        let claimed = at("apply -n ziti -f -");
        assert!(free < claimed && claimed < at("deployment/legacy --replicas=1"));
        at(r#"{"app":"legacy"}"#);
        at(r#"{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}"#);
        assert!(
            !back.iter().any(|call| call.contains("--replicas=0")),
            "{back:#?}"
        );
    }

    /// A claim that asks for another mode would never bind to the volume.
    #[test]
    fn the_volume_is_asked_for_as_it_was_and_one_that_cannot_be_written_is_refused() {
        let mut release = release();
        release.volume.access_modes = vec!["ReadWriteMany".to_owned()];
        let text = script(&release, &router(&json!({})), &target()).unwrap();
        assert!(text.contains("- ReadWriteMany"), "{text}");
        assert!(!text.contains("ReadWriteOnce"), "{text}");
        release.volume.access_modes = vec!["ReadOnlyMany".to_owned()];
        let refused = script(&release, &router(&json!({})), &target()).unwrap_err();
        assert!(format!("{refused}").contains("ReadOnlyMany"), "{refused}");
    }

    /// The spec of the ZitiRouter, and what stands in the comments.
    fn read(release: &Release) -> (Value, String) {
        let script = script(release, &router(&json!({})), &target()).unwrap();
        let object = script.split("cat <<'EOF'\n").nth(1).unwrap();
        let object = object.split("\nEOF").next().unwrap();
        let object: Value = serde_saphyr::from_str(object).unwrap();
        serde_json::from_value::<api::ZitiRouter>(object.clone()).unwrap();
        let comments = script.lines().filter(|line| line.starts_with('#'));
        (
            object["spec"].clone(),
            comments.collect::<Vec<_>>().join("\n"),
        )
    }

    fn listener(port: u16, host: &str, advertised: u16) -> Listener {
        Listener {
            port: Some(port),
            advertise: Some((host.to_owned(), advertised)),
        }
    }

    #[test]
    fn the_advertised_names_are_kept_and_the_services_lead_to_the_new_pod() {
        let mut release = release();
        release.config.edge = listener(3022, "legacy-edge.ziti.svc", 443);
        release.config.link = Some(listener(3022, "links.example.com", 443));
        let (spec, comments) = read(&release);
        assert_eq!(
            spec["edge"],
            json!({"advertise": {"host": "legacy-edge.ziti.svc", "port": 443}})
        );
        assert_eq!(
            spec["link"],
            json!({"port": 3022, "advertise": {"host": "links.example.com", "port": 443}})
        );
        assert!(comments.contains("goes on advertising"), "{comments}");
        assert!(!comments.contains("certificate lacks"), "{comments}");
        let script = script(&release, &router(&json!({})), &target()).unwrap();
        let patch = r#"kubectl patch -n ziti service/legacy-edge --type=json -p '[{"op":"replace","path":"/spec/selector","value":{"statefulset.kubernetes.io/pod-name":"edge-0"}}]'"#;
        assert!(script.contains(patch), "{script}");
    }

    #[test]
    fn a_certificate_without_the_new_name_is_no_obstacle() {
        let mut release = release();
        release.config.dns = vec!["old".to_owned()];
        let (spec, comments) = read(&release);
        assert_eq!(spec["csr"]["sans"]["dns"], json!(["old"]));
        assert!(
            comments.contains("certificate lacks edge-0.ziti.svc"),
            "{comments}"
        );
    }

    #[test]
    fn a_name_that_no_router_can_be_told_is_not_kept() {
        let mut release = release();
        release.config.edge = listener(3022, "[2001:db8::1]", 443);
        let (spec, comments) = read(&release);
        assert_eq!(spec["edge"], Value::Null);
        assert!(comments.contains("edge-0.ziti.svc"), "{comments}");
        assert_eq!(spec["link"], json!({"expose": {"type": "None"}}));
    }

    #[test]
    fn an_intercepting_router_stays_one_member_where_it_is() {
        let mut release = release();
        release.host_network = true;
        release.pod = serde_json::from_value(json!({"nodeSelector": {"role": "edge"}})).unwrap();
        release.config.tunnel = Some(Tunnel {
            mode: "tproxy".to_owned(),
            options: serde_json::from_value(
                json!({"lanIf": "eth0", "resolver": "udp://127.0.0.1:53"}),
            )
            .unwrap(),
        });
        let (spec, comments) = read(&release);
        assert_eq!(spec["topology"], "StatefulSet");
        assert_eq!(
            spec["tunnel"]["tproxy"],
            json!({"hostNetwork": true, "lanIf": "eth0", "resolver": "udp://127.0.0.1:53"})
        );
        assert_eq!(spec["pod"]["nodeSelector"]["role"], "edge");
        assert!(comments.contains("privileged"), "{comments}");
    }

    #[test]
    fn a_router_that_offers_services_goes_on_offering_them() {
        let mut release = release();
        release.config.tunnel = Some(Tunnel {
            mode: "proxy".to_owned(),
            options: serde_json::from_value(json!({"services": ["web:8080", "names:8053:udp"]}))
                .unwrap(),
        });
        let (spec, _) = read(&release);
        assert_eq!(
            spec["tunnel"]["proxy"]["services"],
            json!([{"service": "web", "port": 8080}, {"service": "names", "port": 8053, "protocol": "UDP"}])
        );
    }
}
