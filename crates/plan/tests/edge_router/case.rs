//! The case that a decision is asked for.

use api::edge_router::{AgentReport, EdgeRouterStatus, Enrollment, ProvidedEnrollment};
use api::reasons::types;
use api::{EdgeRouter, EdgeRouterSpec, NetworkRef, SecretKeyRef, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::Settings;
use plan::conditions::find;
use plan::edge_router::{
    Entity, Facts, NetworkBasics, NetworkFacts, Plan, Problem, SecretFacts, View, plan,
};
use plan::token::TokenFacts;

/// A case: what is observed of the EdgeRouter `coast/lamp-0` of install `pier`.
pub(crate) struct Case {
    pub(crate) object: EdgeRouter,
    pub(crate) network: NetworkFacts,
    pub(crate) provided: Option<Result<TokenFacts, Problem>>,
    pub(crate) secret: SecretFacts,
    pub(crate) install_uid: Option<String>,
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(100_000).unwrap()
}

pub(crate) fn ago(seconds: i64) -> Time {
    Time(now() - SignedDuration::from_secs(seconds))
}

pub(crate) fn token(digest: &str, subject: &str) -> TokenFacts {
    TokenFacts {
        digest: digest.into(),
        subject: subject.into(),
        expires_at: Some(now() + SignedDuration::from_hours(1)),
        names_controllers: true,
    }
}

/// The router as this EdgeRouter registered it, offline for an hour.
pub(crate) fn ours() -> Entity {
    let tags = [
        (names::TAG_INSTALL, "pier"),
        (names::TAG_NAMESPACE, "coast"),
        (names::TAG_NAME, "lamp-0"),
        (names::TAG_UID, "u1"),
    ];
    Entity {
        id: "r1".into(),
        name: "lamp-0".into(),
        tags: tags
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        offline_for: Some(SignedDuration::from_hours(1)),
        ..Entity::default()
    }
}

pub(crate) fn verified(fingerprint: &str) -> Entity {
    Entity {
        verified: true,
        fingerprint: Some(fingerprint.into()),
        ..ours()
    }
}

pub(crate) fn report(reason: &str, fingerprint: Option<&str>, digest: Option<&str>) -> AgentReport {
    AgentReport {
        pod_uid: "p1".into(),
        reason: reason.into(),
        router_id: Some("r1".into()),
        fingerprint: fingerprint.map(str::to_owned),
        token_digest: digest.map(str::to_owned),
        ..AgentReport::default()
    }
}

impl Case {
    pub(crate) fn managed(entities: Vec<Entity>) -> Self {
        let spec = EdgeRouterSpec {
            network_ref: Some(NetworkRef { name: "sea".into() }),
            ..EdgeRouterSpec::default()
        };
        let mut object = EdgeRouter::new("lamp-0", spec);
        object.metadata.namespace = Some("coast".into());
        object.metadata.uid = Some("u1".into());
        object.metadata.finalizers = Some(vec![names::FINALIZER_EDGE_ROUTER.into()]);
        let view = View {
            identity: "sea".into(),
            identity_confirmed: false,
            confirmed_install: None,
            basics: NetworkBasics::default(),
            entities,
            many_missing: false,
            fresh: true,
        };
        Self {
            object,
            network: NetworkFacts::Known(view),
            provided: None,
            secret: SecretFacts::Absent,
            install_uid: None,
        }
    }

    pub(crate) fn provided(token: Result<TokenFacts, Problem>, entities: Vec<Entity>) -> Self {
        let mut case = Self::managed(entities);
        let secret_key_ref = SecretKeyRef {
            name: "given".into(),
            key: "lamp-0".into(),
        };
        case.object.spec.enrollment = Enrollment::Provided(ProvidedEnrollment { secret_key_ref });
        case.provided = Some(token);
        case
    }

    /// A provided token, and a network that cannot be asked.
    pub(crate) fn alone(token: Result<TokenFacts, Problem>, basics: NetworkBasics) -> Self {
        let mut case = Self::provided(token, Vec::new());
        case.network = NetworkFacts::NoCredential(basics);
        case
    }

    pub(crate) fn status(&mut self) -> &mut EdgeRouterStatus {
        self.object.status.get_or_insert_default()
    }

    pub(crate) fn reported(mut self, report: AgentReport) -> Self {
        self.status().agent = Some(report);
        self
    }

    pub(crate) fn recorded(mut self) -> Self {
        self.status().id = Some("r1".into());
        self.status().network_identity = Some("sea".into());
        self
    }

    pub(crate) fn holding(mut self, digest: &str) -> Self {
        self.secret = SecretFacts::Ours(Some(digest.into()));
        self
    }

    pub(crate) fn view(&mut self) -> &mut View {
        let NetworkFacts::Known(view) = &mut self.network else {
            panic!("the network cannot be asked in this case");
        };
        view
    }

    pub(crate) fn plan(&self) -> Plan {
        let settings = Settings {
            install_id: "pier".into(),
            install_uid: self.install_uid.clone(),
            agent_image: "agent".into(),
            router_image: "router".into(),
            controller_image: "registry.example/controller:7".into(),
            cluster_dns: None,
        };
        plan(&Facts {
            object: &self.object,
            settings: &settings,
            network: self.network.clone(),
            provided: self.provided.clone(),
            secret: self.secret.clone(),
            now: now(),
        })
    }
}

pub(crate) fn condition<'a>(plan: &'a Plan, type_: &str) -> &'a Condition {
    find(&plan.status.conditions, type_).expect("the condition is set")
}

pub(crate) fn ready_reason(plan: &Plan) -> &str {
    &condition(plan, types::READY).reason
}
