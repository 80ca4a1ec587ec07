//! A cluster of three walked through 25 years by a moved clock, with the planner's own decisions,
//! Secrets in memory, and `openssl` as the judge of every chain.
//!
//! Whoever verifies has what it read when it started or enrolled: a member may be one restart
//! behind, a router keeps the bundle that it was given. What the judge must find good: each
//! member's certificate and signer, to each member and each router; what a router was given when it
//! enrolled and since, to each member.

use super::secrets::{CA, CA_KEY, Secrets, pki, root, text};
use super::sign::{self, Data};
use super::written;
use api::{ZitiController, names};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::Settings;
use plan::controller::backup::Copies;
use plan::controller::config::files;
use plan::controller::{Admin, Cluster, Facts, Step, Users, plan};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use ziti::authority::{Authority, Validity};
use ziti::chain::certificates;
use ziti::pki::{CertificateFacts, Key, Sans};

const DAY: SignedDuration = SignedDuration::from_hours(24);
const YEAR: SignedDuration = SignedDuration::from_hours(24 * 365);
const MEMBERS: i32 = 3;
/// How long one certificate lasts that a router was given, in years.
const LASTING: i32 = 20;

/// What a member read when it started.
#[derive(Clone)]
struct Running {
    started: Timestamp,
    bundle: String,
    certificate: String,
    signer: String,
    signer_key: String,
}

/// Who enrolled: a router with the bundle that it keeps.
struct Router {
    at: Timestamp,
    bundle: String,
    /// The chain that it shows, and until when it is good by itself.
    chain: String,
    until: Timestamp,
    /// What a signer signed when it enrolled, for as long as a root lives.
    lasting: String,
    member: usize,
    /// Its member left, and came back with another signer.
    left: bool,
}

struct World {
    object: ZitiController,
    settings: Settings,
    secrets: Secrets,
    now: Timestamp,
    running: Vec<Running>,
    routers: Vec<Router>,
    dir: tempfile::TempDir,
    checks: u32,
    events: BTreeMap<&'static str, u32>,
}

fn member(ordinal: i32) -> String {
    names::controller_member("ziti", ordinal)
}

/// What a write does, as the API server notes it.
fn merge(secret: &mut Option<Secret>, metadata: &serde_json::Value, data: Data, now: Timestamp) {
    let held = secret.get_or_insert_default();
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    let annotations = annotations.map(|(key, value)| (key.clone(), value.as_str().unwrap().into()));
    held.metadata
        .annotations
        .get_or_insert_default()
        .extend(annotations);
    held.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
        time: Some(Time(now)),
        fields_v1: Some(FieldsV1(serde_json::json!({"f:data": {}}))),
        ..ManagedFieldsEntry::default()
    }]);
    let held = held.data.get_or_insert_default();
    for (key, value) in data {
        match value {
            Some(value) => held.insert(key, value),
            None => held.remove(&key),
        };
    }
}

impl World {
    fn new(pki: &serde_json::Value) -> Self {
        let spec = serde_json::json!({"replicas": MEMBERS, "pki": pki});
        let spec = serde_json::from_value(spec).unwrap();
        let mut object = ZitiController::new("ziti", spec);
        object.metadata.namespace = Some("farm".into());
        object.metadata.finalizers = Some(vec![names::FINALIZER_CONTROLLER.into()]);
        Self {
            object,
            settings: Settings {
                install_id: "farm".into(),
                install_uid: None,
                agent_image: "agent".into(),
                router_image: "router".into(),
                controller_image: "controller".into(),
                cluster_dns: None,
            },
            secrets: Secrets {
                root: None,
                pki: None,
                admin: None,
                bootstrap: None,
                operator: None,
                identity: None,
                backup: None,
                restore: None,
                issued: None,
            },
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            running: Vec::new(),
            routers: Vec::new(),
            dir: tempfile::tempdir().unwrap(),
            checks: 0,
            events: BTreeMap::new(),
        }
    }

    /// What the planner says of certificates now.
    fn steps(&self) -> Vec<Step> {
        let root = root(&self.secrets);
        let planned = plan(&Facts {
            object: &self.object,
            settings: &self.settings,
            stateful_set: None,
            pods: Vec::new(),
            services: Vec::new(),
            config_maps: Vec::new(),
            claims: Vec::new(),
            extras: Vec::new(),
            pki: pki(&self.secrets, &root),
            root,
            issuer: None,
            joins: BTreeMap::new(),
            copies: Copies::default(),
            web_certificates: BTreeMap::new(),
            admin: Admin::Absent,
            bootstrap: None,
            cluster: Ok(Cluster::default()),
            operator: None,
            network: None,
            users: Users::default(),
            now: self.now,
        });
        let of_certificates = |step: &Step| {
            matches!(
                step,
                Step::MakeRoot { .. } | Step::RenewRoot { .. } | Step::Issue(_)
            )
        };
        planned.steps.into_iter().filter(of_certificates).collect()
    }

    /// Carries out what is due, if anything is; after each step, and each member that starts anew for
    /// it, all chains are looked at.
    fn reconcile(&mut self) {
        for round in 0.. {
            assert!(round < 4, "it does not come to rest");
            let steps = self.steps();
            if steps.is_empty() {
                return;
            }
            for step in steps {
                let root = self.secrets.root.as_ref();
                let (what, data) = match &step {
                    Step::MakeRoot { trust_domain, life } => {
                        ("root", sign::root(trust_domain, *life))
                    }
                    Step::RenewRoot { life } => {
                        ("root renewed", sign::renewed_root(root.unwrap(), *life))
                    }
                    Step::Issue(issues) => {
                        let known = self.secrets.pki.as_ref();
                        ("issued", sign::issued(root.unwrap(), known, issues))
                    }
                    other => panic!("{other:?}"),
                };
                let of_members = matches!(step, Step::Issue(_));
                let noted = match (&step, &self.secrets.pki) {
                    (Step::Issue(issues), Some(known)) => {
                        let given: Vec<_> = issues.iter().map(|one| one.member.clone()).collect();
                        written::noting_others(known, &given)
                    }
                    _ => serde_json::json!({}),
                };
                let into = if of_members {
                    &mut self.secrets.pki
                } else {
                    &mut self.secrets.root
                };
                merge(into, &noted, data.unwrap(), self.now);
                *self.events.entry(what).or_default() += 1;
                if of_members {
                    self.restart();
                }
            }
        }
    }

    /// Members that were given something start anew, one after another.
    fn restart(&mut self) {
        let given = pki(&self.secrets, &root(&self.secrets)).unwrap();
        for ordinal in 0..MEMBERS {
            let at = usize::try_from(ordinal).unwrap();
            let given = given[&member(ordinal)].written_at;
            if self
                .running
                .get(at)
                .is_some_and(|one| given <= Some(one.started))
            {
                continue;
            }
            let secret = self.secrets.pki.as_ref().unwrap();
            let file = |name: &str| text(secret, &format!("{}.{name}", member(ordinal))).unwrap();
            let running = Running {
                started: self.now,
                bundle: text(secret, CA).unwrap(),
                certificate: file(files::CERT),
                signer: file(files::SIGNER),
                signer_key: file(files::SIGNER_KEY),
            };
            if at < self.running.len() {
                self.check();
                self.running[at] = running;
            } else {
                self.running.push(running);
            }
        }
        self.check();
    }

    /// A certificate that a member's signer gives, with the chain that comes along.
    fn signed(&self, at: usize, years: i32) -> String {
        let running = &self.running[at];
        let key = Key::from_pem(&running.signer_key).unwrap();
        let signer = &certificates(&running.signer)[0];
        let signer = Authority::load(signer, key).unwrap();
        let life = Validity {
            not_before: self.now,
            not_after: self.now + YEAR * years,
        };
        let sans = Sans::default();
        let (leaf, _) = signer
            .controller_certificate("router", &sans, "farm", life)
            .unwrap();
        format!("{leaf}{}", running.signer)
    }

    fn enroll(&mut self) {
        let at = self.routers.len() % self.running.len();
        let router = Router {
            at: self.now,
            bundle: self.running[at].bundle.clone(),
            chain: self.signed(at, 1),
            until: self.now + YEAR,
            lasting: certificates(&self.signed(at, LASTING))[0].clone(),
            member: at,
            left: false,
        };
        // Whoever enrolls has a third of a root's life at least.
        let ends = ends(&router);
        assert!(
            ends >= self.now + DAY * self.object.spec.pki.root_days / 3,
            "who enrolled at {} is cut off at {ends}",
            self.now
        );
        self.routers.push(router);
    }

    /// Routers have their certificates renewed when a third of the year is left.
    fn extend(&mut self) {
        for index in 0..self.routers.len() {
            let Router { until, member, .. } = self.routers[index];
            if self.now >= until - DAY * 120 {
                self.routers[index].chain = self.signed(member, 1);
                self.routers[index].until = self.now + YEAR;
            }
        }
    }

    /// The last member leaves for good, and another of its name comes.
    fn leave_and_come(&mut self) {
        let last = usize::try_from(MEMBERS - 1).unwrap();
        let gone = [member(MEMBERS - 1)];
        let noted = written::noting_others(self.secrets.pki.as_ref().unwrap(), &gone);
        let forgotten = sign::forgotten(&gone);
        merge(&mut self.secrets.pki, &noted, forgotten, self.now);
        for router in self.routers.iter_mut().filter(|one| one.member == last) {
            router.left = true;
        }
        let before = self.running[last].signer_key.clone();
        self.reconcile();
        assert_ne!(self.running[last].signer_key, before);
    }

    fn file(&self, text: &str) -> PathBuf {
        let name = plan::set::applied::hash(&text);
        let path = self.dir.path().join(name);
        if !path.exists() {
            std::fs::write(&path, text).unwrap();
        }
        path
    }

    /// `openssl verify` of certificates under a bundle, now.
    fn verify(&self, bundle: &Path, between: Option<&Path>, purpose: &str, of: &BTreeSet<PathBuf>) {
        let mut command = Command::new("openssl");
        command.args(["verify", "-x509_strict", "-purpose", purpose]);
        command.args(["-attime", &self.now.as_second().to_string()]);
        command.arg("-CAfile").arg(bundle);
        if let Some(between) = between {
            command.arg("-untrusted").arg(between);
        }
        let output = command.args(of).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {command:?}: {said}", self.now);
    }

    fn check(&mut self) {
        self.checks += 1;
        let own: BTreeSet<PathBuf> = self
            .running
            .iter()
            .map(|one| self.file(&one.certificate))
            .collect();
        let signers = self.running.iter().map(|one| self.file(&one.signer));
        let signers: BTreeSet<PathBuf> = signers.collect();
        let members: BTreeSet<&String> = self.running.iter().map(|one| &one.bundle).collect();
        let routers = self.routers.iter().filter(|router| !self.is_over(router));
        let routers: BTreeSet<&String> = routers.map(|router| &router.bundle).collect();
        for bundle in members.union(&routers) {
            let bundle = self.file(bundle);
            self.verify(&bundle, None, "sslserver", &own);
            self.verify(&bundle, None, "sslclient", &own);
            self.verify(&bundle, None, "any", &signers);
        }
        // What routers show, by what is between it and the root.
        let mut shown: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
        for router in &self.routers {
            let chain = certificates(&router.chain);
            let between = self.file(&chain[1..].concat());
            shown
                .entry(between)
                .or_default()
                .insert(self.file(&chain[0]));
            if self.now < router.at + YEAR * LASTING && !router.left {
                let signer = self.file(&self.running[router.member].signer);
                shown
                    .entry(signer)
                    .or_default()
                    .insert(self.file(&router.lasting));
            }
        }
        for bundle in members {
            let bundle = self.file(bundle);
            for (between, of) in &shown {
                self.verify(&bundle, Some(between), "sslclient", of);
            }
        }
    }

    /// Whether all that a router trusts has ended: it had to enroll anew before, as the documentation
    /// says.
    fn is_over(&self, router: &Router) -> bool {
        ends(router) <= self.now
    }
}

/// When the last of what a router trusts ends.
fn ends(router: &Router) -> Timestamp {
    let ends = certificates(&router.bundle)
        .into_iter()
        .map(|one| CertificateFacts::from_pem(&one).unwrap().not_after);
    ends.max().unwrap()
}

/// So many days, in steps of ten.
fn walk(pki: &serde_json::Value, days: i32) -> World {
    let mut world = World::new(pki);
    let begin = world.now;
    for day in (0..days).step_by(10) {
        world.now = begin + DAY * day;
        world.reconcile();
        if day % 100 == 0 {
            world.enroll();
        }
        if day == days / 40 * 10 {
            world.leave_and_come();
        }
        world.extend();
        if day % 300 == 0 {
            world.check();
        }
    }
    assert_eq!(world.events["root"], 1);
    world
}

#[test]
fn every_chain_holds_for_everybody_through_25_years() {
    let world = walk(&serde_json::json!({}), 25 * 365);
    assert_eq!(world.events["root renewed"], 1);
    assert!(world.events["issued"] > 35, "{:?}", world.events);
    assert!(world.checks > 150, "{}", world.checks);
    assert!(world.routers.iter().any(|router| ends(router) < world.now));
}

/// With the default lives members start anew when the root is renewed, since their signers are due
/// then as well. Here nothing else is.
#[test]
fn who_enrolls_after_the_root_was_renewed_is_given_the_new_one() {
    let lives = serde_json::json!({"rootDays": 1000, "signerDays": 900, "certificateDays": 800});
    let world = walk(&lives, 2000);
    assert_eq!(world.events["root renewed"], 2);
}

/// Somebody edits the Secret of the members: what Ziti would not start with is issued anew by itself.
#[test]
fn what_was_damaged_or_lacks_a_name_is_issued_anew() {
    let mut world = World::new(&serde_json::json!({}));
    world.reconcile();
    let key = |file: &str| format!("{}.{file}", member(1));
    let poor = {
        let root = world.secrets.root.as_ref().unwrap();
        let authority = Key::from_pem(&text(root, CA_KEY).unwrap()).unwrap();
        let authority = Authority::load(&text(root, CA).unwrap(), authority).unwrap();
        let life = Validity {
            not_before: world.now,
            not_after: world.now + YEAR,
        };
        let domain = world.object.trust_domain();
        let (cert, key) = authority
            .controller_certificate(&member(1), &Sans::default(), &domain, life)
            .unwrap();
        [cert, key.expose_pem().to_owned()]
    };
    let set = |file: &str, value: &str| (key(file), Some(sign::bytes(value)));
    let edits = [
        Data::from([set(files::CERT, &poor[0]), set(files::KEY, &poor[1])]),
        Data::from([set(files::KEY, &poor[1])]),
        Data::from([set(files::CERT, "rubbish")]),
        Data::from([(key(files::SIGNER), None)]),
        Data::from([(key(files::SIGNER_KEY), None)]),
    ];
    for edit in edits {
        let of_signer = edit.keys().any(|key| key.contains("signer"));
        let (now, nothing) = (world.now, serde_json::json!({}));
        merge(&mut world.secrets.pki, &nothing, edit, now);
        let steps = world.steps();
        let [Step::Issue(issues)] = steps.as_slice() else {
            panic!("{steps:?}");
        };
        assert_eq!(issues.len(), 1);
        assert_eq!(issues[0].member, member(1));
        assert_eq!(issues[0].signer.is_some(), of_signer);
        assert_eq!(issues[0].certificate.is_some(), !of_signer);
        world.reconcile();
    }
}
