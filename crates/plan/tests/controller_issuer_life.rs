//! Three members with certificates of an issuer, from one reconcile to the next: what is
//! carried out is there the next time, pods that are deleted come again, and what a member
//! was given counts only where its authority is trusted, as the operator reads it.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::controller::AdvertisedAddress;
use api::reasons::{self, types};
use api::{ZitiController, ZitiNetwork, names};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodCondition, PodStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::core::DynamicObject;
use plan::Settings;
use plan::conditions::find;
use plan::controller::backup::Copies;
use plan::controller::config::{control_plane, names_of};
use plan::controller::issuer::{Authority, Held, Issuer, Offer, Offered, Print};
use plan::controller::network::{Policies, Policy};
use plan::controller::pki::{Leaf, Life, MemberPki, spiffe};
use plan::controller::{
    Admin, Bootstrap, Cluster, Facts, OperatorToken, Peer, Plan, Root, RootFacts, Step, Users, plan,
};
use serde_json::json;
use std::collections::BTreeMap;

const DAY: SignedDuration = SignedDuration::from_hours(24);
const MEMBERS: i32 = 3;

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn member(ordinal: i32) -> String {
    names::controller_member("lamp", ordinal)
}

fn year(from: Timestamp) -> Life {
    Life {
        from,
        until: from + DAY * 365,
    }
}

fn authority(key: &str, life: Life) -> Authority {
    Authority {
        pem: format!("{key} until {}\n", life.until),
        key: key.into(),
        life,
    }
}

/// What one member was given.
#[derive(Clone)]
struct Given {
    certificate: Option<Offered>,
    signer: Option<Offered>,
    at: Timestamp,
}

struct World {
    object: ZitiController,
    settings: Settings,
    issuer: Issuer,
    /// What the Secret of the root holds.
    root: Option<(String, String)>,
    /// What the Secret of the members' certificates holds: theirs, and the bundle.
    given: BTreeMap<String, Given>,
    bundle: String,
    pods: BTreeMap<i32, (u32, Timestamp, String)>,
    uids: u32,
    services: BTreeMap<String, Service>,
    maps: BTreeMap<String, ConfigMap>,
    extras: BTreeMap<String, DynamicObject>,
    workload: Option<StatefulSet>,
    network: Option<ZitiNetwork>,
    now: Timestamp,
}

impl World {
    /// All runs with certificates of an authority that lasts so many days.
    fn running(days: i32) -> Self {
        let spec = json!({
            "replicas": MEMBERS,
            "pki": {"issuerRef": {"name": "network"}},
        });
        let mut object = ZitiController::new("lamp", serde_json::from_value(spec).unwrap());
        object.metadata.namespace = Some("coast".into());
        object.metadata.finalizers = Some(vec![names::FINALIZER_CONTROLLER.into()]);
        let mut world = Self {
            object,
            settings: Settings {
                install_id: "pier".into(),
                install_uid: None,
                agent_image: "registry.example/agent:7".into(),
                router_image: "registry.example/router:7".into(),
                controller_image: "registry.example/controller:1.6.0".into(),
                cluster_dns: None,
            },
            issuer: Issuer {
                installed: true,
                ..Issuer::default()
            },
            root: None,
            given: BTreeMap::new(),
            bundle: String::new(),
            pods: BTreeMap::new(),
            uids: 0,
            services: BTreeMap::new(),
            maps: BTreeMap::new(),
            extras: BTreeMap::new(),
            workload: None,
            network: None,
            now: start(),
        };
        let old = authority("old", Life::of_days(days, world.now));
        for ordinal in 0..MEMBERS {
            world.offer(ordinal, "first", &old);
        }
        world.rest();
        assert_eq!(world.degraded().0, reasons::SETTLED);
        world
    }

    /// cert-manager issues both to one member, with all that is asked for now.
    fn offer(&mut self, ordinal: i32, digest: &str, authority: &Authority) {
        let own = year(self.now);
        let offered = Offered {
            print: Print {
                digest: digest.into(),
                authority: authority.key.clone(),
            },
            own,
            life: Life {
                until: own.until.min(authority.life.until),
                ..own
            },
            names: names_of(&self.object, ordinal).into_iter().collect(),
            uri: Some(spiffe(&self.object.trust_domain(), &member(ordinal))),
            signs: true,
            authority: authority.clone(),
        };
        let member = member(ordinal);
        for name in [
            names::member_certificate(&member),
            names::member_signer(&member),
        ] {
            let offer = Offer::Sound(Box::new(offered.clone()));
            self.issuer.offers.insert(name, offer);
        }
    }

    fn pki(&self) -> Option<BTreeMap<String, MemberPki>> {
        let (bundle, _) = self.root.as_ref()?;
        let of = |given: &Given| {
            let linked = |offered: &&Offered| bundle.contains(&offered.authority.pem);
            let certificate = given.certificate.as_ref().filter(linked);
            let signer = given.signer.as_ref().filter(linked);
            MemberPki {
                held: Held {
                    certificate: certificate.map(|one| one.print.clone()),
                    signer: signer.map(|one| one.print.clone()),
                },
                certificate: certificate.map(|one| Leaf {
                    life: one.life,
                    names: one.names.clone(),
                    uri: one.uri.clone(),
                }),
                signer: signer.map(|one| one.life),
                written_at: Some(given.at),
                bundle_is_current: self.bundle == *bundle,
            }
        };
        let given = self.given.iter();
        let given: BTreeMap<_, _> = given
            .map(|(name, given)| (name.clone(), of(given)))
            .collect();
        (!given.is_empty()).then_some(given)
    }

    fn root(&self) -> Root {
        let Some((bundle, trust_domain)) = &self.root else {
            return Root::Absent;
        };
        let first = &self.issuer.trusted[0];
        Root::Sound(RootFacts {
            bundle: bundle.clone(),
            key: first.key.clone(),
            made: true,
            trust_domain: Some(trust_domain.clone()),
            life: first.life,
            restoring: None,
            restored_from: None,
        })
    }

    fn pod(ordinal: i32, (uid, created, revision): &(u32, Timestamp, String)) -> Pod {
        let mut pod = Pod::default();
        let label = ("controller-revision-hash".to_owned(), revision.clone());
        pod.metadata.name = Some(member(ordinal));
        pod.metadata.uid = Some(uid.to_string());
        pod.metadata.labels = Some([label].into());
        pod.metadata.creation_timestamp = Some(Time(*created));
        pod.status = Some(PodStatus {
            conditions: Some(vec![PodCondition {
                type_: "Ready".into(),
                status: "True".into(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        });
        pod
    }

    fn plan(&self) -> Plan {
        let peer = |ordinal| Peer {
            id: member(ordinal),
            address: format!("tls:{}", control_plane(&self.object, ordinal)),
            voter: true,
            leader: ordinal == 0,
            version: "v1.6.0".into(),
            connected: true,
        };
        let none = Policy::Absent;
        plan(&Facts {
            object: &self.object,
            settings: &self.settings,
            stateful_set: self.workload.clone(),
            pods: self
                .pods
                .iter()
                .map(|(at, pod)| Self::pod(*at, pod))
                .collect(),
            services: self.services.values().cloned().collect(),
            config_maps: self.maps.values().cloned().collect(),
            claims: Vec::new(),
            extras: self.extras.values().cloned().collect(),
            root: self.root(),
            pki: self.pki(),
            joins: BTreeMap::new(),
            web_certificates: BTreeMap::new(),
            copies: Copies::default(),
            issuer: Some(self.issuer.clone()),
            admin: Admin::Ready { digest: "d".into() },
            bootstrap: Some(Bootstrap::default()),
            cluster: Ok(Cluster {
                asked: member(0),
                members: (0..MEMBERS).map(peer).collect(),
                policies: Some(Policies {
                    edge_router: none,
                    service_edge_router: none,
                }),
                identities: vec![("id".into(), "ziti-operator-1".into())],
            }),
            operator: Some(OperatorToken {
                identity: "id".into(),
                serial: 1,
                enrolled: true,
                made_at: start(),
            }),
            network: self.network.clone(),
            users: Users::default(),
            now: self.now,
        })
    }

    /// One reconcile, and what Kubernetes makes of it.
    fn reconcile(&mut self) -> Vec<Step> {
        self.now += SignedDuration::from_secs(2);
        let plan = self.plan();
        for step in &plan.steps {
            self.carry_out(step);
        }
        self.object.status = Some(plan.status);
        if let Some(set) = &mut self.workload {
            let template = set.spec.as_ref().map(|spec| &spec.template);
            let revision = plan::set::applied::hash(&template);
            set.status = Some(StatefulSetStatus {
                update_revision: Some(revision.clone()),
                ..StatefulSetStatus::default()
            });
            for ordinal in 0..MEMBERS {
                let uid = self.uids + 1;
                self.pods.entry(ordinal).or_insert_with(|| {
                    self.uids = uid;
                    (uid, self.now, revision.clone())
                });
            }
        }
        plan.steps
    }

    fn carry_out(&mut self, step: &Step) {
        match step {
            Step::ApplyService(service) => {
                self.services
                    .insert(service.name_any(), (**service).clone());
            }
            Step::ApplyConfigMap(map) => {
                self.maps.insert(map.name_any(), (**map).clone());
            }
            Step::DeleteConfigMap { name } => {
                self.maps.remove(name);
            }
            Step::ApplyExtra(_, extra) => {
                self.extras.insert(extra.name_any(), (**extra).clone());
            }
            Step::ApplyStatefulSet(set) => self.workload = Some((**set).clone()),
            Step::ApplyNetwork(network) => self.network = Some((**network).clone()),
            Step::KeepTrust {
                trust_domain,
                bundle,
            } => {
                let offers = self.issuer.offers.values();
                let offered = offers.filter_map(|offer| match offer {
                    Offer::Sound(offered) => Some(offered.authority.clone()),
                    Offer::Unusable(_) => None,
                });
                let known = self.issuer.trusted.iter().cloned().chain(offered);
                let mut trusted: Vec<_> = known.filter(|one| bundle.contains(&one.pem)).collect();
                trusted.sort_by_key(|one| bundle.find(&one.pem));
                trusted.dedup();
                self.issuer.trusted = trusted;
                self.root = Some((bundle.clone(), trust_domain.clone()));
            }
            Step::Adopt(adoptions) => self.adopt(adoptions),
            Step::DeletePod { name, .. } => {
                self.pods.retain(|ordinal, _| member(*ordinal) != *name);
            }
            Step::MarkMade | Step::WriteBootstrap { .. } | Step::Backup(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn adopt(&mut self, adoptions: &[plan::controller::issuer::Adoption]) {
        let (bundle, _) = self.root.clone().unwrap();
        if self.bundle != bundle {
            self.bundle = bundle;
            for given in self.given.values_mut() {
                given.at = self.now;
            }
        }
        for adoption in adoptions {
            let offered = |name: String| match &self.issuer.offers[&name] {
                Offer::Sound(offered) => Some((**offered).clone()),
                Offer::Unusable(_) => None,
            };
            let certificate = offered(names::member_certificate(&adoption.member));
            let signer = offered(names::member_signer(&adoption.member));
            let given = self.given.entry(adoption.member.clone()).or_insert(Given {
                certificate: None,
                signer: None,
                at: self.now,
            });
            given.at = self.now;
            if adoption.certificate {
                given.certificate = certificate;
            }
            if adoption.signer {
                given.signer = signer;
            }
        }
    }

    /// Until nothing is left to do; what was done.
    fn rest(&mut self) -> Vec<Step> {
        let mut done = Vec::new();
        for _ in 0..40 {
            let steps = self.reconcile();
            if steps.is_empty() {
                return done;
            }
            done.extend(steps);
        }
        panic!("it does not come to rest: {done:#?}");
    }

    fn degraded(&self) -> (String, String) {
        let status = self.plan().status;
        let condition = find(&status.conditions, types::DEGRADED).unwrap();
        (condition.reason.clone(), condition.message.clone())
    }

    /// Whether every pod has read certificates of that authority.
    fn all_have_read(&self, key: &str) -> bool {
        let read = |(ordinal, (_, created, _)): (&i32, &(u32, Timestamp, String))| {
            let given = &self.given[&member(*ordinal)];
            let both = [&given.certificate, &given.signer];
            let of_key =
                |one: &&Option<Offered>| one.as_ref().is_some_and(|one| one.print.authority == key);
            both.iter().all(of_key) && given.at <= *created
        };
        self.pods.len() == 3 && self.pods.iter().all(read)
    }
}

/// The members that were restarted, in their order.
fn restarted(steps: &[Step]) -> Vec<&str> {
    let names = steps.iter().filter_map(|step| match step {
        Step::DeletePod { name, .. } => Some(name.as_str()),
        _ => None,
    });
    names.collect()
}

#[test]
fn an_authority_of_another_key_is_taken_when_the_old_one_has_ended_before_it_came() {
    let mut world = World::running(100);
    world.now += DAY * 101;
    let new = authority("new", Life::of_days(3000, world.now));
    for ordinal in 0..MEMBERS {
        world.offer(ordinal, "second", &new);
    }
    let done = world.rest();
    assert!(world.all_have_read("new"), "{done:#?}");
    assert_eq!(restarted(&done).len(), 3, "once for each");
    assert_eq!(world.degraded().0, reasons::SETTLED);
}

#[test]
fn one_whose_certificate_is_damaged_is_given_one_of_another_authority_when_the_others_trust_it() {
    for damaged in 0..MEMBERS {
        let mut world = World::running(3000);
        world.now += DAY;
        world.given.get_mut(&member(damaged)).unwrap().certificate = None;
        let new = authority("new", Life::of_days(6000, world.now));
        for ordinal in 0..MEMBERS {
            world.offer(ordinal, "second", &new);
        }
        world.reconcile();
        let (reason, message) = world.degraded();
        assert_eq!(reason, reasons::CERTIFICATES_PENDING);
        let name = member(damaged);
        assert!(
            message.contains(&format!("{name} has no sound")),
            "{message}"
        );
        let done = world.rest();
        let restarted = restarted(&done);
        assert_eq!(restarted.len(), 3);
        assert_eq!(
            *restarted.last().unwrap(),
            name,
            "it could not start before"
        );
        let given = &world.given[&name];
        assert!(given.certificate.is_some());
        // The others have time.
        assert_eq!(world.degraded().0, reasons::AUTHORITY_CHANGED);
    }
}

#[test]
fn another_address_waits_until_every_member_has_a_certificate_with_it() {
    for changed in [false, true] {
        let mut world = World::running(3000);
        world.now += DAY;
        world.object.spec.advertised.control_plane = Some(AdvertisedAddress {
            host: "{member}.lamp.example".into(),
            port: Some(6262),
        });
        let old = match &world.issuer.offers[&names::member_certificate(&member(0))] {
            Offer::Sound(offered) => offered.authority.clone(),
            Offer::Unusable(_) => unreachable!(),
        };
        let of = if changed {
            authority("new", Life::of_days(6000, world.now))
        } else {
            old
        };
        let template = world.workload.clone().unwrap().spec.unwrap().template;
        for ordinal in 0..MEMBERS {
            // cert-manager takes its time, and a pod that ends must start again.
            let done = world.rest();
            let now = world.workload.clone().unwrap().spec.unwrap().template;
            assert_eq!(now, template, "{done:#?}");
            let maps = world.maps.len();
            assert!(maps >= 3, "the configuration that is in use is kept");
            assert_eq!(world.degraded().0, reasons::CERTIFICATES_PENDING);
            let status = world.plan().status;
            let progressing = find(&status.conditions, types::PROGRESSING).unwrap();
            assert_eq!(progressing.reason, reasons::CERTIFICATES_PENDING);
            world.offer(ordinal, "second", &of);
        }
        let done = world.rest();
        for given in world.given.values() {
            let certificate = given.certificate.as_ref().unwrap();
            assert_eq!(certificate.print.digest, "second");
        }
        assert_eq!(restarted(&done).len(), 3, "once for each: {done:#?}");
        let now = world.workload.clone().unwrap().spec.unwrap().template;
        assert_ne!(now, template);
        let signers_have_time = [reasons::SETTLED, reasons::AUTHORITY_CHANGED];
        assert_eq!(world.degraded().0, signers_have_time[usize::from(changed)]);
    }
}
