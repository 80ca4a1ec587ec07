//! Decides for a `ZitiController`: its certificates, its members, who joins and
//! who leaves the cluster, which pod is replaced next, and the `ZitiNetwork` that
//! it publishes.
//!
//! The controller observes [`Facts`], calls [`plan`], applies the steps in their
//! order and stops at the first that fails. [`pki`] decides what is issued, and
//! [`issuer`] what is taken from cert-manager,
//! [`config`] writes the configuration, [`render`] makes the objects, [`member`]
//! gathers what is known of each member, [`cluster`] decides who joins, leaves and
//! restarts, [`network`] what is published and made on the network, [`backup`] and [`restore`]
//! what is kept elsewhere and comes back, [`teardown`]
//! takes everything away, [`status`] says how it stands.
//!
//! **Invariants**: quorum is never given up on purpose; the network is made once;
//! the root's key is made once; a member that the user wants is never removed from
//! the cluster.

pub mod backup;
pub mod cluster;
pub mod config;
mod decide;
pub mod issuer;
pub mod jobs;
pub mod member;
pub mod network;
pub mod pki;
pub mod render;
pub mod restore;
mod status;
mod teardown;
mod validate;
pub mod web;
mod workload;

pub use decide::plan;
pub use status::{after_failure, without_backups};

use crate::Settings;
use crate::edge_router::Problem;
use crate::set::extra::Kind;
use api::{ZitiController, ZitiControllerStatus, ZitiNetwork};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use std::collections::{BTreeMap, BTreeSet};

/// The port of every member: APIs and control plane, told apart by ALPN.
pub const PORT: u16 = 1280;
/// The most members that a cluster may have; configurations are written for all
/// of them, so that to scale is no change of the template.
pub const MOST_MEMBERS: i32 = 5;

/// Everything that was observed, read live; the StatefulSet before the pods.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The object, with its last status.
    pub object: &'a ZitiController,
    /// This installation.
    pub settings: &'a Settings,
    /// The members' workload.
    pub stateful_set: Option<StatefulSet>,
    /// Pods that carry its label.
    pub pods: Vec<Pod>,
    /// Services that carry its label.
    pub services: Vec<Service>,
    /// ConfigMaps that carry its label.
    pub config_maps: Vec<ConfigMap>,
    /// Volume claims that carry its label.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Objects of [`crate::set::extra::KINDS`] that carry its label, and Certificates
    /// where it has an issuer.
    pub extras: Vec<DynamicObject>,
    /// The root of its certificates.
    pub root: Root,
    /// The certificates of its members, as they are in the one Secret.
    pub pki: Option<BTreeMap<String, pki::MemberPki>>,
    /// What cert-manager has issued; `None` where the root is our own.
    pub issuer: Option<issuer::Issuer>,
    /// The first administrator.
    pub admin: Admin,
    /// The Secret by which a member is told to make the network.
    pub bootstrap: Option<Bootstrap>,
    /// The Secrets in `spec.web.altServerCerts`, by name.
    pub web_certificates: BTreeMap<String, web::WebCertificate>,
    /// What the cluster says of itself.
    pub cluster: Result<Cluster, Problem>,
    /// Members that could not be taken into it, by name: the last attempt of each.
    pub joins: BTreeMap<String, FailedJoin>,
    /// The operator's own identity on the network.
    pub operator: Option<OperatorToken>,
    /// The ZitiNetwork of the same name, whosever it is.
    pub network: Option<ZitiNetwork>,
    /// Backups, and a restore.
    pub copies: backup::Copies,
    /// EdgeRouters of that network.
    pub users: Users,
    /// The operator's clock.
    pub now: Timestamp,
}

/// The root of the certificates, as its Secret holds it. Where an issuer has the
/// key, the Secret holds what is trusted, and the same marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// There is no Secret.
    Absent,
    /// It can be used.
    Sound(RootFacts),
    /// The Secret is there, and cannot be used: why.
    Unusable(String),
}

/// What is known of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootFacts {
    /// Its certificate, PEM; older ones of the same key behind it.
    pub bundle: String,
    /// Identifier of its key.
    pub key: String,
    /// Whether a network has been made with it. It is kept with the root, and so
    /// outlives the ZitiController where the databases do.
    pub made: bool,
    /// The restore that it is of, until its network is there.
    pub restoring: Option<String>,
    /// The backup that its network was restored from.
    pub restored_from: Option<String>,
    /// Trust domain in its certificate.
    pub trust_domain: Option<String>,
    /// Its life.
    pub life: pki::Life,
}

/// The first administrator's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// There is none.
    Absent,
    /// It holds a name and a password.
    Ready {
        /// A digest of both.
        digest: String,
    },
    /// It is there and cannot be used: why.
    Unusable(String),
}

/// What the bootstrap Secret says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bootstrap {
    /// The member that may make the network, if one may.
    pub initialize: Option<String>,
    /// The backup that it is to take instead, if there is one.
    pub restore: Option<restore::Order>,
    /// Digest of the administrator in it, if there is one.
    pub admin: Option<String>,
}

/// A member that could not be taken into the cluster. The operator remembers it
/// until it succeeds, or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedJoin {
    /// When it was tried last.
    pub at: Timestamp,
    /// How often it has failed.
    pub times: u32,
    /// Why, by the leader's word.
    pub why: String,
}

impl FailedJoin {
    /// How long until it is tried again: 15 s, twice that after each, and five
    /// minutes at most. Others need the time, since an attempt can take seconds.
    pub fn patience(&self) -> SignedDuration {
        let doubled = 1 << self.times.saturating_sub(1).min(5);
        SignedDuration::from_secs(15)
            .saturating_mul(doubled)
            .min(SignedDuration::from_mins(5))
    }
}

/// What the cluster says of itself, through one of its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The member that was asked.
    pub asked: String,
    /// Its members; empty where nothing has been made yet.
    pub members: Vec<Peer>,
    /// Policies on the network by which routers carry traffic; `None` where they
    /// were not asked for.
    pub policies: Option<network::Policies>,
    /// Identities on the network that this installation made for itself: id and
    /// name.
    pub identities: Vec<(String, String)>,
}

/// A member of the cluster, as the one that was asked sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its id: the name of its pod.
    pub id: String,
    /// The address at which others dial it.
    pub address: String,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it leads.
    pub leader: bool,
    /// Its version, empty where it is not known.
    pub version: String,
    /// Whether the one that was asked is connected to it.
    pub connected: bool,
}

impl Peer {
    /// Whether it is in the cluster. Ziti lists whoever is connected as well: one
    /// that was removed and still runs, and one that has another address now. They
    /// do not vote. (One without a vote that a person added is not told from them
    /// while it is connected.)
    pub fn is_member(&self) -> bool {
        self.voter || !self.connected
    }
}

impl Cluster {
    /// The cluster by the list of one member. Its voters alone: Ziti lists whoever is
    /// connected as well, a member that was removed among them, and we make none
    /// without a vote.
    ///
    /// Ziti calls that member the leader whose address is the leader's. One that leads
    /// from another address than the cluster knows is not shown by itself, and by
    /// others only beside the voters. Who was shown so is kept in `moved`, from one
    /// list to the next (tried on 1.6.0 and 2.1).
    pub fn listed(asked: &str, peers: Vec<Peer>, moved: &mut Option<String>) -> Self {
        let beside = peers.iter().find(|peer| peer.leader && !peer.voter);
        if let Some(leader) = beside {
            *moved = Some(leader.id.clone());
        }
        let voters = peers.into_iter().filter(|peer| peer.voter);
        let mut members: Vec<Peer> = voters.collect();
        if !members.iter().any(|peer| peer.leader) {
            for peer in &mut members {
                peer.leader = moved.as_ref() == Some(&peer.id);
            }
        }
        Self {
            asked: asked.to_owned(),
            members,
            ..Self::default()
        }
    }

    /// Whether those that are connected run different versions: until they do not,
    /// Ziti takes no writes but changes of the members
    /// (`controller/raft/mesh`, `updateClusterState`).
    pub fn is_mixed(&self) -> bool {
        let connected = self.members.iter().filter(|peer| peer.connected);
        let versions: BTreeSet<&str> = connected.map(|peer| peer.version.as_str()).collect();
        versions.len() > 1
    }

    /// The member that leads, if one does.
    pub fn leader(&self) -> Option<&Peer> {
        self.members.iter().find(|peer| peer.leader)
    }

    /// The member of that id, if it is in the cluster.
    pub fn peer(&self, id: &str) -> Option<&Peer> {
        self.members
            .iter()
            .find(|peer| peer.id == id && peer.is_member())
    }
}

/// The one-time token of the operator's own identity, as its Secret holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorToken {
    /// The identity's id on the network.
    pub identity: String,
    /// How often one was made.
    pub serial: i64,
    /// When it was made.
    pub made_at: Timestamp,
    /// Whether there is a certificate, of this token or of one before it, in the
    /// Secret that the ZitiNetwork's controller keeps.
    pub enrolled: bool,
}

/// Who uses the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// EdgeRouters that nobody is deleting.
    pub staying: usize,
    /// EdgeRouters that are being deleted.
    pub leaving: usize,
}

/// What is to be done, and what to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to do, in this order, up to the first that fails.
    pub steps: Vec<Step>,
    /// The status to write.
    pub status: ZitiControllerStatus,
    /// When to look again, if nothing happens before.
    pub requeue: Option<SignedDuration>,
}

/// One act.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Hold the object, since more than its children has to go with it.
    AddFinalizer,
    /// Let the object go.
    ReleaseFinalizer,
    /// Make or correct a Service.
    ApplyService(Box<Service>),
    /// Make or correct a ConfigMap.
    ApplyConfigMap(Box<ConfigMap>),
    /// Make or correct an object of a kind that only some have.
    ApplyExtra(Kind, Box<DynamicObject>),
    /// Make or correct the members' workload.
    ApplyStatefulSet(Box<StatefulSet>),
    /// Make or correct the ZitiNetwork.
    ApplyNetwork(Box<ZitiNetwork>),
    /// Make the root: key and certificate. Fails where its Secret exists.
    MakeRoot {
        /// Its trust domain.
        trust_domain: String,
        /// Its life.
        life: pki::Life,
    },
    /// Renew the root with the same key.
    RenewRoot {
        /// Its new life.
        life: pki::Life,
    },
    /// Issue certificates of members.
    Issue(Vec<pki::Issue>),
    /// Keep what the network is trusted by, where its authority is an issuer's.
    KeepTrust {
        /// Its trust domain.
        trust_domain: String,
        /// The authorities, PEM.
        bundle: String,
    },
    /// Give members what cert-manager has issued, and what all are trusted by.
    Adopt(Vec<issuer::Adoption>),
    /// Have cert-manager issue Certificates of these names anew.
    Reissue(Vec<String>),
    /// Forget the certificates of members that are gone.
    ForgetMembers(Vec<String>),
    /// Make the first administrator's Secret. Fails where it exists.
    MakeAdmin,
    /// Keep with the root that the network has been made, or restored.
    MarkMade,
    /// Say in the bootstrap Secret which member may make the network, or none.
    WriteBootstrap {
        /// The member.
        initialize: Option<String>,
        /// What it is to take instead of making one.
        restore: Option<restore::Order>,
    },
    /// Something for backups.
    Backup(backup::Act),
    /// Something of a restore.
    Restore(restore::Act),
    /// Take a member into the cluster.
    AddMember {
        /// Its id.
        member: String,
        /// The address at which others dial it: `tls:host:port`.
        address: String,
    },
    /// Take a member out of the cluster.
    RemoveMember {
        /// Its id.
        member: String,
    },
    /// Have another member lead.
    TransferLeadership {
        /// Its id.
        to: String,
    },
    /// Replace a pod.
    DeletePod {
        /// Its name.
        name: String,
        /// Its uid, so that no other pod of that name is meant.
        uid: String,
        /// Why.
        why: String,
    },
    /// Make the policies by which routers carry traffic.
    MakePolicies,
    /// Delete the policies of that kind which carry our tags.
    DeletePolicies,
    /// Make an identity for the operator itself, and keep its token.
    MakeOperatorIdentity {
        /// How many there were, and one more.
        serial: i64,
    },
    /// Delete identities that the operator had before.
    DeleteIdentities(Vec<String>),
    /// Say on the ZitiNetwork that it ends with its controllers.
    EndNetwork,
    /// Delete the ZitiNetwork.
    DeleteNetwork {
        /// Its uid.
        uid: String,
    },
    /// Delete the members' workload.
    DeleteStatefulSet {
        /// Its uid.
        uid: String,
    },
    /// Delete a Service.
    DeleteService {
        /// Its name.
        name: String,
    },
    /// Delete a ConfigMap.
    DeleteConfigMap {
        /// Its name.
        name: String,
    },
    /// Delete an object of a kind that only some have.
    DeleteExtra {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// Delete a member's volume claim.
    DeleteClaim {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Delete the Secrets that make the network: root, certificates,
    /// administrator, token.
    DeleteSecrets,
}
