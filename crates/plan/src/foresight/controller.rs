//! What will be done for a `ZitiController`.

use super::set::{applied, put, remove};
use super::{Foreseen, MOST_ROUNDS, Story};
use crate::controller::cluster::led;
use crate::controller::network::{Policies, Policy};
use crate::controller::pki::{Leaf, spiffe};
use crate::controller::{
    Admin, Bootstrap, Cluster, Facts, OperatorToken, Peer, Plan, Root, RootFacts, Step, backup,
    plan, restore,
};
use crate::set::extra::Kind;
use crate::set::member::replicas;
use api::{ZitiController, names, reasons};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Stands for what only the world can give: a digest, an id, a key.
const TO_COME: &str = "to-come";

/// What will be done for a `ZitiController`, as far as it can be told, and the plan of
/// the next reconcile. Members that come up and clusters that form are assumed, one
/// thing at a time; that a leader whose pod is replaced hands over is its sidecar's
/// doing and no step.
pub fn controller(facts: &Facts<'_>) -> (Plan, Vec<Foreseen<Step>>) {
    let first = plan(facts);
    let mut object = facts.object.clone();
    let mut seen = facts.clone();
    let mut story = Story::new();
    for _ in 0..MOST_ROUNDS {
        let next = plan(&Facts {
            object: &object,
            ..seen.clone()
        });
        if next.steps.is_empty() {
            match assume(&mut seen) {
                Some(what) => story.assume(what),
                None => break,
            }
            continue;
        }
        if !story.tell(&next.steps) || next.steps.contains(&Step::ReleaseFinalizer) {
            break;
        }
        for step in &next.steps {
            carry_out(&mut seen, &mut object, step);
        }
    }
    (first, story.told)
}

/// The facts once a step was carried out.
fn carry_out(facts: &mut Facts<'_>, object: &mut ZitiController, step: &Step) {
    match step {
        Step::AddFinalizer => {
            let finalizers = object.metadata.finalizers.get_or_insert_default();
            finalizers.push(names::FINALIZER_CONTROLLER.to_owned());
        }
        Step::ApplyService(service) => put(&mut facts.services, service),
        Step::ApplyConfigMap(map) => put(&mut facts.config_maps, map),
        Step::ApplyExtra(kind, extra) => {
            facts.extras.retain(|known| {
                Kind::of(known) != Some(*kind) || known.metadata.name != extra.metadata.name
            });
            facts.extras.push(extra.as_ref().clone());
        }
        Step::ApplyStatefulSet(set) => {
            facts.stateful_set = Some(applied(facts.stateful_set.as_ref(), set));
        }
        Step::ApplyNetwork(wanted) => {
            let mut network = wanted.as_ref().clone();
            let before = facts.network.as_ref();
            network.status = before.and_then(|before| before.status.clone());
            facts.network = Some(network);
        }
        Step::DeletePod { name, .. } => come_back(facts, name),
        Step::DeleteStatefulSet { .. } => facts.stateful_set = None,
        Step::DeleteService { name } => remove(&mut facts.services, name),
        Step::DeleteConfigMap { name } => remove(&mut facts.config_maps, name),
        Step::DeleteClaim { name, .. } => remove(&mut facts.claims, name),
        Step::DeleteExtra { kind, name } => facts.extras.retain(|known| {
            Kind::of(known) != Some(*kind) || known.metadata.name.as_ref() != Some(name)
        }),
        Step::EndNetwork => {
            if let Some(network) = &mut facts.network {
                let annotations = network.metadata.annotations.get_or_insert_default();
                let mark = names::ANNOTATION_NETWORK_ENDS.to_owned();
                annotations.insert(mark, "true".to_owned());
            }
        }
        Step::DeleteNetwork { .. } => facts.network = None,
        Step::ReleaseFinalizer => {}
        Step::Backup(act) => for_backups(facts, act),
        Step::Restore(restore::Act::CreateClaim(claim)) => put(&mut facts.claims, claim.as_ref()),
        secrets_or_network => {
            in_secrets(facts, secrets_or_network);
            on_the_network(facts, secrets_or_network);
        }
    }
}

/// What backups have; what a restore fetches cannot be told before.
fn for_backups(facts: &mut Facts<'_>, act: &backup::Act) {
    let copies = &mut facts.copies;
    match act {
        backup::Act::Issue { trust_domain, life } => {
            copies.certificate = Some(backup::ClientPki {
                leaf: Some(Leaf {
                    life: *life,
                    names: BTreeSet::new(),
                    uri: Some(backup::uri(trust_domain)),
                }),
                bundle_is_current: true,
            });
        }
        backup::Act::Apply(job) => copies.cron_job = Some(job.as_ref().clone()),
        backup::Act::Delete { .. } => copies.cron_job = None,
        backup::Act::DeleteCertificate => copies.certificate = None,
    }
}

/// What a step leaves in Secrets.
fn in_secrets(facts: &mut Facts<'_>, step: &Step) {
    match step {
        Step::MakeRoot { trust_domain, life } => {
            facts.root = Root::Sound(RootFacts {
                bundle: TO_COME.to_owned(),
                key: TO_COME.to_owned(),
                made: false,
                trust_domain: Some(trust_domain.clone()),
                life: *life,
                restoring: None,
                restored_from: None,
            });
        }
        Step::RenewRoot { life } => {
            if let Root::Sound(root) = &mut facts.root {
                root.life = *life;
            }
        }
        Step::MarkMade => {
            if let Root::Sound(root) = &mut facts.root {
                root.made = true;
            }
        }
        Step::Issue(issues) => {
            let all = facts.pki.get_or_insert_default();
            for issue in issues {
                let have = all.entry(issue.member.clone()).or_default();
                have.bundle_is_current = true;
                have.signer = issue.signer.or(have.signer);
                if let Some(life) = issue.certificate {
                    have.certificate = Some(Leaf {
                        life,
                        names: issue.names.iter().cloned().collect(),
                        uri: Some(spiffe(&issue.trust_domain, &issue.member)),
                    });
                }
            }
        }
        Step::ForgetMembers(members) => {
            let all = facts.pki.get_or_insert_default();
            all.retain(|member, _| !members.contains(member));
        }
        Step::MakeAdmin => {
            facts.admin = Admin::Ready {
                digest: TO_COME.to_owned(),
            };
        }
        Step::WriteBootstrap {
            initialize,
            restore,
        } => {
            let admin = match &facts.admin {
                Admin::Ready { digest } => Some(digest.clone()),
                _ => None,
            };
            facts.bootstrap = Some(Bootstrap {
                admin: admin.filter(|_| initialize.is_some()),
                initialize: initialize.clone(),
                restore: restore.clone(),
            });
        }
        Step::DeleteSecrets => {
            facts.root = Root::Absent;
            facts.admin = Admin::Absent;
            (facts.pki, facts.bootstrap, facts.operator) = (None, None, None);
        }
        _ => {}
    }
}

/// What a step leaves in the cluster of controllers and on its network.
fn on_the_network(facts: &mut Facts<'_>, step: &Step) {
    let made_at = facts.now;
    let Ok(cluster) = &mut facts.cluster else {
        return;
    };
    let set_policies = |cluster: &mut Cluster, policy| {
        cluster.policies = Some(Policies {
            edge_router: policy,
            service_edge_router: policy,
        });
    };
    match step {
        Step::AddMember { member, address } => {
            let version = cluster.leader().map(|leader| leader.version.clone());
            cluster.members.retain(|peer| peer.id != *member);
            cluster.members.push(Peer {
                id: member.clone(),
                address: address.clone(),
                voter: true,
                leader: false,
                version: version.unwrap_or_default(),
                connected: true,
            });
        }
        Step::RemoveMember { member } => cluster.members.retain(|peer| peer.id != *member),
        Step::TransferLeadership { to } => lead(cluster, to),
        Step::MakePolicies => set_policies(cluster, Policy::Ours),
        Step::DeletePolicies => set_policies(cluster, Policy::Absent),
        Step::MakeOperatorIdentity { serial } => {
            let name = format!("{TO_COME}-{serial}");
            cluster.identities.push((TO_COME.to_owned(), name));
            facts.operator = Some(OperatorToken {
                identity: TO_COME.to_owned(),
                serial: *serial,
                made_at,
                enrolled: true,
            });
        }
        Step::DeleteIdentities(ids) => cluster.identities.retain(|(id, _)| !ids.contains(id)),
        _ => {}
    }
}

fn lead(cluster: &mut Cluster, leader: &str) {
    leader.clone_into(&mut cluster.asked);
    for peer in &mut cluster.members {
        peer.leader = peer.id == leader;
    }
}

/// The pod is replaced by one of the template that the workload has then, and is not
/// up yet. A leader has handed over to another who is.
fn come_back(facts: &mut Facts<'_>, name: &str) {
    let fresh = pod(facts, name, false);
    put(&mut facts.pods, &fresh);
    let Ok(cluster) = &mut facts.cluster else {
        return;
    };
    if cluster.members.len() < 2 {
        return;
    }
    for peer in &mut cluster.members {
        peer.connected &= peer.id != name;
    }
    let leads = cluster.leader().is_some_and(|leader| leader.id == name);
    let heir = cluster.members.iter().find(|peer| peer.connected);
    if let Some(heir) = heir.map(|peer| peer.id.clone()).filter(|_| leads) {
        lead(cluster, &heir);
    }
}

/// A pod of the workload.
fn pod(facts: &Facts<'_>, name: &str, ready: bool) -> Pod {
    let status = facts.stateful_set.as_ref();
    let status = status.and_then(|set| set.status.as_ref());
    let revision = status.and_then(|status| status.update_revision.clone());
    let label = |revision| ("controller-revision-hash".to_owned(), revision);
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(TO_COME.to_owned()),
            labels: revision.map(|revision| BTreeMap::from([label(revision)])),
            creation_timestamp: Some(Time(facts.now)),
            ..ObjectMeta::default()
        },
        status: Some(PodStatus {
            phase: Some("Running".to_owned()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".to_owned(),
                status: if ready { "True" } else { "False" }.to_owned(),
                last_transition_time: Some(Time(facts.now)),
                ..PodCondition::default()
            }]),
            container_statuses: Some(vec![ContainerStatus {
                state: Some(ContainerState {
                    running: Some(ContainerStateRunning::default()),
                    ..ContainerState::default()
                }),
                ..ContainerStatus::default()
            }]),
            ..PodStatus::default()
        }),
        ..Pod::default()
    }
}

/// Assume the next thing that the operator waits for, and say what it is.
fn assume(facts: &mut Facts<'_>) -> Option<&'static str> {
    if let Some(set) = &mut facts.stateful_set {
        let generation = set.metadata.generation;
        let status = set.status.get_or_insert_default();
        if status.observed_generation < generation {
            status.observed_generation = generation;
            return Some("Kubernetes has taken up the StatefulSet");
        }
    }
    let controller = facts.object.metadata.name.clone().unwrap_or_default();
    let told = facts.stateful_set.as_ref().map_or(0, replicas);
    let wanted: Vec<String> = (0..told)
        .map(|ordinal| names::controller_member(&controller, ordinal))
        .collect();
    let name_of = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    let before = facts.pods.len();
    facts.pods.retain(|pod| wanted.contains(&name_of(pod)));
    if facts.pods.len() < before {
        return Some("the pods have ended");
    }
    let missing: Vec<Pod> = wanted
        .iter()
        .filter(|name| !facts.pods.iter().any(|pod| name_of(pod) == **name))
        .map(|name| pod(facts, name, true))
        .collect();
    if !missing.is_empty() {
        facts.pods.extend(missing);
        return Some("the pods run");
    }
    forms(facts).or_else(|| comes_up(facts))
}

/// A cluster of which nobody could be asked yet.
fn forms(facts: &mut Facts<'_>) -> Option<&'static str> {
    let unasked = match &facts.cluster {
        Ok(cluster) => cluster.members.is_empty(),
        Err(problem) => problem.reason == reasons::PENDING,
    };
    if !unasked || facts.pods.is_empty() {
        return None;
    }
    let first = facts.bootstrap.as_ref()?.initialize.clone();
    let made = first.is_some();
    let found: Vec<String> = match first {
        Some(first) => vec![first],
        None => facts
            .pods
            .iter()
            .filter_map(|pod| pod.metadata.name.clone())
            .collect(),
    };
    let controller = facts.object.metadata.name.as_deref().unwrap_or_default();
    let workload = names::controller_workload(controller);
    let peers = found.iter().enumerate().filter_map(|(index, id)| {
        let ordinal = crate::set::member::ordinal(&workload, id)?;
        Some(Peer {
            id: id.clone(),
            address: crate::controller::cluster::address(facts, ordinal),
            voter: true,
            leader: index == 0,
            version: String::new(),
            connected: true,
        })
    });
    let members: Vec<Peer> = peers.collect();
    facts.cluster = Ok(Cluster {
        asked: members.first()?.id.clone(),
        members,
        policies: Some(Policies::default()),
        identities: Vec::new(),
    });
    Some(if made {
        "the first member has made the network"
    } else {
        "the members have found together"
    })
}

/// A member that was restarted.
fn comes_up(facts: &mut Facts<'_>) -> Option<&'static str> {
    led(facts)?;
    let is_down = |pod: &&Pod| {
        let status = pod.status.iter().flat_map(|status| &status.conditions);
        let mut conditions = status.flatten();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status != "True")
            && pod.metadata.uid.as_deref() == Some(TO_COME)
    };
    let name = facts.pods.iter().find(is_down)?.metadata.name.clone()?;
    let up = pod(facts, &name, true);
    put(&mut facts.pods, &up);
    if let Ok(cluster) = &mut facts.cluster {
        for peer in &mut cluster.members {
            peer.connected |= peer.id == name;
        }
    }
    Some("that member is up again")
}
