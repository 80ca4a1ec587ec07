//! What stands in Secrets, as the planner may know it.

use super::World;
use k8s_openapi::jiff::Timestamp;
use plan::controller::pki::{Issue, Leaf, Life, MemberPki, spiffe};
use plan::controller::restore::Order;
use plan::controller::{Admin, Bootstrap, OperatorToken, Root, RootFacts};
use std::collections::BTreeMap;

/// The digest of the administrator's name and password.
const ADMIN: &str = "digest-of-admin";

/// The Secrets of the one ZitiController.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    pub(crate) root: Option<RootFacts>,
    pub(crate) members: BTreeMap<String, MemberPki>,
    /// The trust bundle beside the members' certificates.
    pub(crate) bundle: String,
    pub(crate) has_pki: bool,
    pub(crate) admin: bool,
    pub(crate) bootstrap: Option<Bootstrap>,
    pub(crate) operator: Option<OperatorToken>,
    /// How many roots were made.
    pub(crate) roots: u32,
}

impl Secrets {
    pub(crate) fn is_made(&self) -> bool {
        self.root.as_ref().is_some_and(|root| root.made)
    }

    pub(crate) fn root(&self) -> Root {
        self.root.clone().map_or(Root::Absent, Root::Sound)
    }

    pub(crate) fn pki(&self) -> Option<BTreeMap<String, MemberPki>> {
        let current = self
            .root
            .as_ref()
            .is_some_and(|root| root.bundle == self.bundle);
        let members = self.members.iter().map(|(name, have)| {
            (
                name.clone(),
                MemberPki {
                    bundle_is_current: current,
                    ..have.clone()
                },
            )
        });
        (self.has_pki && self.root.is_some()).then(|| members.collect())
    }

    pub(crate) fn admin(&self) -> Admin {
        if self.admin {
            Admin::Ready {
                digest: ADMIN.to_owned(),
            }
        } else {
            Admin::Absent
        }
    }

    pub(crate) fn make_root(&mut self, trust_domain: &str, life: Life) {
        self.roots += 1;
        self.root = Some(RootFacts {
            bundle: format!("root {} of {}", self.roots, life.from),
            key: format!("key {}", self.roots),
            made: false,
            restoring: None,
            restored_from: None,
            trust_domain: Some(trust_domain.to_owned()),
            life,
        });
    }

    pub(crate) fn renew_root(&mut self, life: Life) {
        let root = self.root.as_mut().expect("it was there");
        root.bundle = format!("root {} of {}", self.roots, life.from);
        root.life = life;
    }

    /// `at` is the API server's time.
    pub(crate) fn issue(&mut self, issues: &[Issue], at: Timestamp) {
        self.has_pki = true;
        self.bundle = self.root.as_ref().expect("it was there").bundle.clone();
        for issue in issues {
            let have = self.members.entry(issue.member.clone()).or_default();
            if let Some(life) = issue.certificate {
                have.certificate = Some(Leaf {
                    life,
                    names: issue.names.iter().cloned().collect(),
                    uri: Some(spiffe(&issue.trust_domain, &issue.member)),
                });
            }
            have.signer = issue.signer.or(have.signer);
            have.written_at = Some(at);
        }
    }

    pub(crate) fn write_bootstrap(&mut self, initialize: Option<&str>, restore: Option<Order>) {
        let told = initialize.filter(|_| self.admin);
        self.bootstrap = Some(Bootstrap {
            initialize: told.map(str::to_owned),
            restore,
            admin: told.map(|_| ADMIN.to_owned()),
        });
    }

    /// What goes with the network.
    pub(crate) fn delete(&mut self) {
        *self = Self {
            roots: self.roots,
            ..Self::default()
        };
    }
}

impl World {
    pub(crate) fn make_identity(&mut self, serial: i64) {
        let now: Timestamp = self.operators_clock();
        let identity = format!("id-{serial}-{}", now.as_second());
        let name = format!("ziti-operator-{serial}");
        let made = (identity.clone(), name.clone());
        let done = self.write(|database| {
            database.identities.retain(|(_, have)| *have != name);
            database.identities.push(made);
        });
        if done.is_ok() {
            self.secrets.operator = Some(OperatorToken {
                identity,
                serial,
                made_at: now,
                enrolled: true,
            });
        }
    }
}
