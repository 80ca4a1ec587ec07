//! The Ziti network in memory: routers, tokens that expire, connections, and
//! requests that are carried out although their reply was lost.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::edge_router::{Entity, Step};
use plan::token::TokenFacts;
use std::collections::BTreeMap;

/// How long a token lives here.
pub(crate) const TOKEN_LIFE: SignedDuration = SignedDuration::from_mins(30);

/// One network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ziti {
    pub(crate) identity: String,
    pub(crate) routers: BTreeMap<String, Router>,
    /// Requests that a controller will carry out later, at the latest then.
    pub(crate) late: Vec<(Timestamp, Step)>,
    counter: u32,
    /// How often something was written.
    pub(crate) writes: u32,
}

/// One router of the network.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    pub(crate) entity: Entity,
    /// Certificate with which it is connected.
    pub(crate) connected: Option<String>,
}

impl Ziti {
    pub(crate) fn named(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            ..Self::default()
        }
    }

    fn next(&mut self, what: &str) -> String {
        self.counter += 1;
        format!("{}-{what}{}", self.identity, self.counter)
    }

    fn token(&mut self, id: &str, now: Timestamp) -> TokenFacts {
        TokenFacts {
            digest: self.next("digest"),
            subject: id.to_owned(),
            expires_at: Some(now + TOKEN_LIFE),
            names_controllers: true,
        }
    }

    /// A router that somebody makes: the operator by its tags, or a person.
    pub(crate) fn create(
        &mut self,
        name: &str,
        tags: BTreeMap<String, String>,
        now: Timestamp,
    ) -> String {
        let id = self.next("router");
        let token = self.token(&id, now);
        let entity = Entity {
            id: id.clone(),
            name: name.to_owned(),
            tags,
            token: Some(token),
            ..Entity::default()
        };
        self.routers.insert(
            id.clone(),
            Router {
                entity,
                connected: None,
            },
        );
        id
    }

    /// Carry out what a step asks for.
    pub(crate) fn commit(&mut self, step: &Step, now: Timestamp) -> Result<(), String> {
        match step {
            Step::Create(spec) => {
                if self
                    .routers
                    .values()
                    .any(|router| router.entity.name == spec.name)
                {
                    return Err("name must be unique".to_owned());
                }
                let id = self.create(&spec.name, spec.tags.clone(), now);
                let entity = &mut self.routers.get_mut(&id).expect("just made").entity;
                entity.role_attributes.clone_from(&spec.role_attributes);
                entity.tunneler_enabled = spec.tunneler_enabled;
                entity.cost = spec.cost;
                entity.no_traversal = spec.no_traversal;
            }
            Step::Claim { id, tags } => self.at(id)?.entity.tags.clone_from(tags),
            Step::Update { id, changes } => {
                changes.carry_out(&mut self.at(id)?.entity);
            }
            Step::ReEnroll { id, .. } => self.re_enroll(id, now)?,
            Step::Delete { id } => {
                self.routers.remove(id).ok_or("404")?;
            }
            _ => return Err(format!("{step:?} is not for the network")),
        }
        self.writes += 1;
        Ok(())
    }

    /// A new token: the old certificate cannot connect any more, and a live
    /// connection goes on.
    pub(crate) fn re_enroll(&mut self, id: &str, now: Timestamp) -> Result<(), String> {
        let token = self.token(id, now);
        let entity = &mut self.at(id)?.entity;
        entity.token = Some(token);
        entity.verified = false;
        entity.fingerprint = None;
        Ok(())
    }

    fn at(&mut self, id: &str) -> Result<&mut Router, String> {
        self.routers.get_mut(id).ok_or_else(|| "404".to_owned())
    }

    /// Carry out the late requests that are due, or all.
    pub(crate) fn land(&mut self, now: Timestamp, all: bool) {
        let late = std::mem::take(&mut self.late);
        for (due, step) in late {
            if all || due <= now {
                // The requester is gone, and so is whoever would hear of a refusal.
                self.commit(&step, now).ok();
            } else {
                self.late.push((due, step));
            }
        }
    }

    /// Redeem a token. Gives the router's id and the new certificate.
    pub(crate) fn enroll(
        &mut self,
        digest: &str,
        now: Timestamp,
    ) -> Result<(String, String), &'static str> {
        let certificate = self.next("cert");
        let router = self
            .routers
            .values_mut()
            .find(|router| {
                router
                    .entity
                    .token
                    .as_ref()
                    .is_some_and(|token| token.digest == digest)
            })
            .ok_or("TokenSpent")?;
        if router
            .entity
            .token
            .as_ref()
            .is_some_and(|token| token.is_expired(now))
        {
            return Err("TokenExpired");
        }
        router.entity.token = None;
        router.entity.verified = true;
        router.entity.fingerprint = Some(certificate.clone());
        Ok((router.entity.id.clone(), certificate))
    }

    /// Connect with a certificate, if it is the one expected.
    pub(crate) fn connect(&mut self, id: &str, certificate: &str) -> bool {
        let Some(router) = self.routers.get_mut(id) else {
            return false;
        };
        if !router.entity.verified || router.entity.fingerprint.as_deref() != Some(certificate) {
            return false;
        }
        router.connected = Some(certificate.to_owned());
        router.entity.online = true;
        router.entity.synced = true;
        true
    }

    /// End the connection that was made with this certificate.
    pub(crate) fn disconnect(&mut self, certificate: &str) {
        for router in self.routers.values_mut() {
            if router.connected.as_deref() == Some(certificate) {
                router.connected = None;
                router.entity.online = false;
                router.entity.synced = false;
            }
        }
    }

    pub(crate) fn is_online(&self, certificate: &str) -> bool {
        self.routers
            .values()
            .any(|router| router.connected.as_deref() == Some(certificate))
    }

    /// Every row, without how long it was seen offline: that is the operator's
    /// own memory.
    pub(crate) fn rows(&self) -> Vec<Entity> {
        self.routers
            .values()
            .map(|router| router.entity.clone())
            .collect()
    }
}
