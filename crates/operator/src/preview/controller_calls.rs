//! The calls for the steps of a `ZitiController`. What Secrets would hold is not
//! made here, let alone shown: a call names the Secret and its keys.

use super::calls::{Call, Known, Target, applied, delete, extra_path, let_go, path, take_on};
use api::{ZitiController, ZitiNetwork, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use plan::controller::pki::Issue;
use plan::controller::{Facts, Root, Step, backup, restore};
use serde_json::{Value, json};

const MANAGER: &str = names::FIELD_MANAGER_CONTROLLER;
const EDGE: &str = "/edge/management/v1";
const CLUSTER: &str = "/fabric/v1/cluster";

impl Known {
    /// The children of a ZitiController that were seen.
    pub(super) fn of_controller_facts(facts: &Facts<'_>) -> Self {
        let mut known = Self::empty(MANAGER);
        for service in &facts.services {
            known.put(service);
        }
        for map in &facts.config_maps {
            known.put(map);
        }
        for extra in &facts.extras {
            known.put_extra(extra);
        }
        if let Some(set) = &facts.stateful_set {
            known.put(set);
        }
        if let Some(network) = &facts.network {
            known.put(network);
        }
        let name = facts.object.name_any();
        for (there, secret) in [
            (
                !matches!(facts.root, Root::Absent),
                names::controller_root_secret(&name),
            ),
            (facts.pki.is_some(), names::controller_pki_secret(&name)),
            (
                facts.bootstrap.is_some(),
                names::controller_bootstrap_secret(&name),
            ),
            (
                facts.operator.is_some(),
                names::controller_operator_secret(&name),
            ),
        ] {
            if there {
                known.see_secret(secret);
            }
        }
        known
    }

    /// The calls for a step of a ZitiController.
    pub(super) fn of_controller(&mut self, object: &ZitiController, step: &Step) -> Vec<Call> {
        let namespace = object.namespace().unwrap_or_default();
        let call = match step {
            Step::AddFinalizer => take_on(object, names::FINALIZER_CONTROLLER),
            Step::ReleaseFinalizer => let_go(object, names::FINALIZER_CONTROLLER),
            Step::ApplyService(service) => self.apply(&namespace, service.as_ref()),
            Step::ApplyConfigMap(map) => self.apply(&namespace, map.as_ref()),
            Step::ApplyStatefulSet(set) => self.apply(&namespace, set.as_ref()),
            Step::ApplyNetwork(network) => self.apply(&namespace, network.as_ref()),
            Step::ApplyExtra(kind, extra) => {
                let extra: &DynamicObject = extra;
                self.apply_extra(*kind, &namespace, extra)
            }
            Step::DeletePod { name, why, .. } => Call {
                what: format!("replace pod {name}: {why}"),
                ..delete::<Pod>(&namespace, name)
            },
            Step::DeleteStatefulSet { .. } => {
                let workload = names::controller_workload(&object.name_any());
                delete::<StatefulSet>(&namespace, &workload)
            }
            Step::DeleteService { name } => delete::<Service>(&namespace, name),
            Step::DeleteConfigMap { name } => delete::<ConfigMap>(&namespace, name),
            Step::DeleteClaim { name, .. } => delete::<PersistentVolumeClaim>(&namespace, name),
            Step::DeleteNetwork { .. } => delete::<ZitiNetwork>(&namespace, &object.name_any()),
            Step::DeleteExtra { kind, name } => {
                let what = format!("delete {} {name}", kind.kind);
                Call::kubernetes("DELETE", extra_path(*kind, &namespace, name), what)
            }
            Step::EndNetwork => {
                let name = object.name_any();
                let what = format!("say on ZitiNetwork {name} that it ends with its controllers");
                Call::kubernetes("PATCH", path::<ZitiNetwork>(&namespace, &name), what)
            }
            other => return self.of_secret(object, other).into_iter().collect(),
        };
        vec![call]
    }

    /// Those that write a Secret, or to the network.
    fn of_secret(&mut self, object: &ZitiController, step: &Step) -> Vec<Call> {
        let name = object.name_any();
        let root = names::controller_root_secret(&name);
        let pki = names::controller_pki_secret(&name);
        match step {
            Step::MakeRoot { trust_domain, life } => vec![self.secret(
                object,
                &root,
                &["ca.crt", "ca.key"],
                &format!(
                    "the root of the certificates of {trust_domain}, until {}",
                    life.until
                ),
            )],
            Step::RenewRoot { life } => vec![self.secret(
                object,
                &root,
                &["ca.crt"],
                &format!("the root renewed with its key, until {}", life.until),
            )],
            Step::MarkMade => vec![self.secret(object, &root, &[], "that the network was made")],
            Step::Issue(issues) => {
                let told: Vec<String> = issues.iter().map(issued).collect();
                vec![self.secret(object, &pki, &[], &told.join("; "))]
            }
            Step::ForgetMembers(members) => {
                let what = format!("nothing of {} any more", members.join(", "));
                vec![self.secret(object, &pki, &[], &what)]
            }
            Step::MakeAdmin => vec![self.secret(
                object,
                &names::controller_admin_secret(&name),
                &["username", "password"],
                "the first administrator",
            )],
            Step::WriteBootstrap {
                initialize,
                restore,
            } => {
                let what = match (initialize, restore) {
                    (None, _) => "that no member makes the network any more".to_owned(),
                    (Some(member), None) => format!("that {member} makes the network"),
                    (Some(member), Some(order)) => {
                        format!("that {member} restores the network from {}", order.id)
                    }
                };
                let secret = names::controller_bootstrap_secret(&name);
                vec![self.secret(object, &secret, &[], &what)]
            }
            Step::DeleteSecrets => {
                let all = [
                    names::controller_bootstrap_secret(&name),
                    names::controller_operator_secret(&name),
                    names::controller_admin_secret(&name),
                    pki,
                    root,
                ];
                let namespace = object.namespace().unwrap_or_default();
                let all = all.iter().filter(|secret| self.has_secret(secret));
                all.map(|secret| delete::<Secret>(&namespace, secret))
                    .collect()
            }
            Step::MakeOperatorIdentity { serial } => {
                let made = format!("make identity number {serial} for the operator itself");
                let secret = names::controller_operator_secret(&name);
                let namespace = object.namespace().unwrap_or_default();
                let path = applied(&path::<Secret>(&namespace, &secret), MANAGER);
                let what = format!("put its one-time token into Secret {secret}");
                let body = json!({"data": {names::TOKEN_KEY: "(not shown)"}});
                self.see_secret(secret);
                vec![
                    ziti("POST", format!("{EDGE}/identities"), made),
                    Call::kubernetes("PATCH", path, what).with_body(body),
                ]
            }
            Step::KeepTrust { .. } => vec![self.secret(
                object,
                &root,
                &["ca.crt"],
                "what the network is trusted by, of the issuer",
            )],
            Step::Adopt(given) => {
                let members: Vec<&str> = given.iter().map(|one| one.member.as_str()).collect();
                let what = format!("certificates of the issuer for {}", members.join(", "));
                vec![self.secret(object, &pki, &[], &what)]
            }
            Step::Backup(act) => vec![self.of_backups(object, act)],
            Step::Restore(act) => self.of_restore(object, act).into_iter().collect(),
            other => on_the_network(other),
        }
    }

    fn of_backups(&mut self, object: &ZitiController, act: &backup::Act) -> Call {
        let namespace = object.namespace().unwrap_or_default();
        let name = names::controller_backup(&object.name_any());
        match act {
            backup::Act::Issue { life, .. } => {
                let what = format!("the certificate of backups, until {}", life.until);
                self.secret(object, &name, &["ca.crt", "tls.crt", "tls.key"], &what)
            }
            backup::Act::Apply(job) => self.apply(&namespace, job.as_ref()),
            backup::Act::Delete { .. } => delete::<CronJob>(&namespace, &name),
            backup::Act::DeleteCertificate => delete::<Secret>(&namespace, &name),
        }
    }

    /// What a restore does before anything is known of the backup.
    fn of_restore(&mut self, object: &ZitiController, act: &restore::Act) -> Option<Call> {
        let namespace = object.namespace().unwrap_or_default();
        let name = names::controller_restore(&object.name_any());
        let create = |path: String, what: String| Some(Call::kubernetes("POST", path, what));
        match act {
            restore::Act::MakeKey { .. } => {
                let holds = "the key of this restore";
                Some(self.secret(object, &name, &["identity"], holds))
            }
            restore::Act::CreateClaim(claim) => create(
                PersistentVolumeClaim::url_path(&(), Some(&namespace)),
                format!("make PersistentVolumeClaim {}", claim.name_any()),
            ),
            restore::Act::CreateJob(job) => create(
                Job::url_path(&(), Some(&namespace)),
                format!("start Job {}, which fetches the backup", job.name_any()),
            ),
            restore::Act::DeleteJob { name, .. } => Some(delete::<Job>(&namespace, name)),
            restore::Act::Take { snapshot, .. } => {
                let root = names::controller_root_secret(&object.name_any());
                let holds =
                    format!("the root out of the backup {snapshot}, and all that it signed");
                Some(self.secret(object, &root, &["ca.crt", "ca.key"], &holds))
            }
            restore::Act::DeleteKey => Some(delete::<Secret>(&namespace, &name)),
        }
    }

    /// A write of a Secret, of which nothing is shown but these keys.
    fn secret(&mut self, object: &ZitiController, name: &str, keys: &[&str], holds: &str) -> Call {
        let namespace = object.namespace().unwrap_or_default();
        let is_new = self.see_secret(name.to_owned());
        let verb = if is_new { "make" } else { "change" };
        let what = format!("{verb} Secret {name}: {holds}");
        let data: serde_json::Map<String, Value> = keys
            .iter()
            .map(|key| ((*key).to_owned(), json!("(not shown)")))
            .collect();
        // What is there is never written over by one who has not read it.
        let call = if is_new {
            Call::kubernetes("POST", Secret::url_path(&(), Some(&namespace)), what)
        } else {
            Call::kubernetes("PATCH", path::<Secret>(&namespace, name), what)
        };
        call.with_body(json!({"metadata": {"name": name}, "data": data}))
    }
}

fn issued(issue: &Issue) -> String {
    let certificate = issue
        .certificate
        .map(|life| format!("certificate until {}", life.until));
    let signer = issue
        .signer
        .map(|life| format!("signer until {}", life.until));
    let what: Vec<String> = certificate.into_iter().chain(signer).collect();
    format!("{}: {}", issue.member, what.join(", "))
}

fn ziti(method: &'static str, path: String, what: String) -> Call {
    Call {
        to: Target::Ziti,
        ..Call::kubernetes(method, path, what)
    }
}

fn on_the_network(step: &Step) -> Vec<Call> {
    let policies = ["edge-router-policies", "service-edge-router-policies"];
    let policy = plan::controller::network::POLICY;
    match step {
        Step::AddMember { member, address } => {
            let what = format!("take {member} into the cluster");
            let body = json!({"address": address, "isVoter": true});
            vec![ziti("POST", format!("{CLUSTER}/add-member"), what).with_body(body)]
        }
        Step::RemoveMember { member } => {
            let what = format!("take {member} out of the cluster");
            let body = json!({"id": member});
            vec![ziti("POST", format!("{CLUSTER}/remove-member"), what).with_body(body)]
        }
        Step::TransferLeadership { to } => {
            let what = format!("have {to} lead the cluster");
            let path = format!("{CLUSTER}/transfer-leadership");
            vec![ziti("POST", path, what).with_body(json!({"newLeaderId": to}))]
        }
        Step::MakePolicies => policies
            .map(|kind| {
                let what = format!("make or mend policy {policy}: all may use all routers");
                ziti("POST", format!("{EDGE}/{kind}"), what)
            })
            .into(),
        Step::DeletePolicies => policies
            .map(|kind| {
                let what = format!("delete policy {policy}, where it is the operator's");
                ziti("DELETE", format!("{EDGE}/{kind}/{policy}"), what)
            })
            .into(),
        Step::DeleteIdentities(ids) => ids
            .iter()
            .map(|id| {
                let what = format!("delete identity {id}, which the operator had before");
                ziti("DELETE", format!("{EDGE}/identities/{id}"), what)
            })
            .collect(),
        _ => Vec::new(),
    }
}
