//! Tokens that a person gives, and whose each token ever was.

use super::{Mode, TOKEN_TEXT, World};
use plan::set::member::claim_name;
use std::collections::BTreeMap;

impl World {
    /// A person makes a router, or gives it a new token, and passes the token
    /// on.
    pub(crate) fn give_token(&mut self, ordinal: i32) {
        let member = self.member(ordinal);
        let name = format!("by-hand-{ordinal}");
        let held = self
            .kube
            .claims
            .get(&claim_name(&member))
            .and_then(|volume| volume.identity.clone());
        let held = held
            .map(|identity| identity.router)
            .filter(|id| self.ziti.routers.contains_key(id));
        let by_name = || {
            self.ziti
                .routers
                .values()
                .find(|router| router.entity.name == name)
                .map(|router| router.entity.id.clone())
        };
        let id = match held.or_else(by_name) {
            Some(id) => {
                self.ziti.re_enroll(&id, self.now).expect("it is there");
                id
            }
            None => self.ziti.create(&name, BTreeMap::new(), self.now),
        };
        self.learn_tokens();
        let token = self.ziti.routers[&id]
            .entity
            .token
            .clone()
            .expect("just made");
        self.given.insert(member, token);
        self.write_tokens_into_spec();
    }

    pub(crate) fn write_tokens_into_spec(&mut self) {
        if self.mode == Mode::ProvidedAlone {
            let tokens = self
                .given
                .iter()
                .map(|(member, token)| {
                    let text = format!("{TOKEN_TEXT}{}", token.digest);
                    (member.clone(), api::router::InlineToken(text))
                })
                .collect();
            self.kube.change_set(|set| set.spec.tokens = Some(tokens));
        }
    }

    pub(crate) fn learn_tokens(&mut self) {
        for router in self
            .ziti
            .routers
            .values()
            .chain(self.elsewhere.routers.values())
        {
            if let Some(token) = &router.entity.token {
                self.all_tokens
                    .insert(token.digest.clone(), token.subject.clone());
            }
        }
    }
}
