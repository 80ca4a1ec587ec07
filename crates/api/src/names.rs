//! Names that are part of the contract with users and with the network:
//! labels, annotations, finalizers, ownership tags, field managers.

/// Label on every object that belongs to a `ZitiRouter`: the name of the set.
pub const LABEL_SET: &str = "openziti.io/zitirouter";
/// Label on every object that belongs to one member of a set.
pub const LABEL_MEMBER: &str = "openziti.io/member";
/// Label on every object that belongs to a `ZitiController`: its name.
pub const LABEL_CONTROLLER: &str = "openziti.io/ziticontroller";
/// Label on the pods of a `ZitiController`'s Jobs: its name. They carry no
/// [`LABEL_CONTROLLER`], by which Services find members.
pub const LABEL_JOBS: &str = "openziti.io/jobs-of";
/// Annotation on a volume claim that was made for a restore: the uid of the
/// restore's Secret. While that Secret is there, the claim holds no database.
pub const ANNOTATION_RESTORE: &str = "openziti.io/restore";
/// Recommended label; its value is [`MANAGER`] on everything that we make.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Recommended label, the kind of program: `ziti-router`.
pub const LABEL_NAME: &str = "app.kubernetes.io/name";
/// Recommended label, the set.
pub const LABEL_INSTANCE: &str = "app.kubernetes.io/instance";
/// Recommended label, the part played.
pub const LABEL_COMPONENT: &str = "app.kubernetes.io/component";
/// Value of [`LABEL_MANAGED_BY`].
pub const MANAGER: &str = "ziti-operator";

/// Annotation on a StatefulSet: the hash of the template without the images
/// that the operator chooses by default, so that an operator upgrade is not a
/// change of the template.
pub const ANNOTATION_TEMPLATE: &str = "openziti.io/template-hash";
/// Annotation on a `ZitiNetwork` by which a person confirms that this
/// installation takes over from another one. Value: the install id found on the
/// `ZitiNetwork`, or the uid of that installation ([`TAG_INSTALL_UID`]).
pub const ANNOTATION_CONFIRM_INSTALL: &str = "openziti.io/confirm-install";
/// Annotation by which a person confirms that the network behind the address
/// is the right one. Value: the identity that the network reports now.
pub const ANNOTATION_CONFIRM_NETWORK: &str = "openziti.io/confirm-network";
/// Annotation by which a person confirms that a router that vanished from the
/// network is to be registered anew. Value: the id that vanished.
pub const ANNOTATION_CONFIRM_MISSING: &str = "openziti.io/confirm-missing";

/// Annotation by which a person confirms that another cluster behind a
/// `ZitiCluster` is the right one. Value: the identity that it reports now.
pub const ANNOTATION_CONFIRM_CLUSTER: &str = "openziti.io/confirm-cluster";

/// Annotation by which a person confirms that a `ZitiCluster` will never come back,
/// so that what was deployed there is left behind. Value: its name.
pub const ANNOTATION_CONFIRM_ABANDON: &str = "openziti.io/confirm-abandon";

/// Annotation on what was deployed to another cluster, in the place of an owner
/// reference: `<install id>@<install uid>/<namespace>/<name>/<uid>` of the
/// `ZitiRouter`. The install uid is that of [`TAG_INSTALL_UID`]; without one,
/// there is no `@`.
pub const ANNOTATION_HOME: &str = "openziti.io/home";

/// Label on each `ZitiRouter` that `ziti-operator spread` made of one manifest: the
/// name in that.
pub const LABEL_SPREAD: &str = "openziti.io/spread";
/// Label on an `EdgeRouter`: the `ZitiCluster` where its router runs, if that is
/// not this cluster.
pub const LABEL_CLUSTER: &str = "openziti.io/ziticluster";

/// Finalizer of the `ZitiRouter` controller on its own kind.
pub const FINALIZER_ROUTER: &str = "openziti.io/zitirouter";
/// Finalizer of the `EdgeRouter` controller on its own kind.
pub const FINALIZER_EDGE_ROUTER: &str = "openziti.io/edgerouter";
/// Finalizer on an `EdgeRouter` while a pod runs with its identity.
pub const FINALIZER_IN_USE: &str = "openziti.io/in-use";
/// Finalizer on a `ZitiNetwork` while an `EdgeRouter` needs it.
pub const FINALIZER_NETWORK: &str = "openziti.io/zitinetwork";

/// Finalizer of the `ZitiController` controller on its own kind.
pub const FINALIZER_CONTROLLER: &str = "openziti.io/ziticontroller";

/// Annotation on a ServiceAccount: the audience for which its tokens may be sent
/// to another cluster, by a `ZitiCluster` that names it.
pub const ANNOTATION_CLUSTER_AUDIENCE: &str = "openziti.io/cluster-audience";

/// Type of the Secrets that a `ZitiCluster` may send to the address in its own spec:
/// whoever made the Secret has said so.
pub const SECRET_TYPE_CLUSTER: &str = "openziti.io/cluster-credential";

/// Finalizer on a `ZitiCluster` while something is deployed there.
pub const FINALIZER_CLUSTER: &str = "openziti.io/ziticluster";

/// Field manager of the `ZitiCluster` controller.
pub const FIELD_MANAGER_CLUSTER: &str = "ziti-operator-ziticluster";
/// Field manager of the `ZitiController` controller.
pub const FIELD_MANAGER_CONTROLLER: &str = "ziti-operator-ziticontroller";
/// Field manager of the `ZitiNetwork` controller.
pub const FIELD_MANAGER_NETWORK: &str = "ziti-operator-network";
/// Field manager of the `EdgeRouter` controller.
pub const FIELD_MANAGER_EDGE_ROUTER: &str = "ziti-operator-edgerouter";
/// Field manager of the `ZitiRouter` controller.
pub const FIELD_MANAGER_ROUTER: &str = "ziti-operator-zitirouter";

/// Ownership tag on the network: the installation that owns the router. Tag
/// keys hold only letters, `-` and `_`: Ziti's filters take nothing else.
pub const TAG_INSTALL: &str = "ziti-operator-install";
/// Ownership tag: uid of the namespace in which the operator of that
/// installation runs, which tells it from another that was given the same id.
pub const TAG_INSTALL_UID: &str = "ziti-operator-install-uid";
/// Ownership tag: namespace of the `EdgeRouter`.
pub const TAG_NAMESPACE: &str = "ziti-operator-namespace";
/// Ownership tag: name of the `EdgeRouter`.
pub const TAG_NAME: &str = "ziti-operator-name";
/// Ownership tag: uid of the `EdgeRouter`.
pub const TAG_UID: &str = "ziti-operator-uid";

/// Key of the token in the Secret `<edgerouter>-enrollment`.
pub const TOKEN_KEY: &str = "token";

/// Name of the Secret in which an `EdgeRouter`'s token is put.
pub fn enrollment_secret(edge_router: &str) -> String {
    format!("{edge_router}-enrollment")
}

/// Annotation on the pods of a set: its `restartAt`.
pub const ANNOTATION_RESTART: &str = "openziti.io/restart-at";

/// Annotation on what belongs to a member of topology `PerNode`: its node.
pub const ANNOTATION_NODE: &str = "openziti.io/node";

/// Name of the Secret from which the pods of a set get their tokens, a key for
/// each member.
pub fn tokens_secret(set: &str) -> String {
    format!("{set}-tokens")
}

/// Name of the Secret into which tokens written in a `ZitiRouter` are copied,
/// so that no other object repeats them.
pub fn provided_tokens_secret(set: &str) -> String {
    format!("{set}-provided-tokens")
}

/// Name of the Secret with the client certificate that the operator obtained
/// with a one-time admin token.
pub fn admin_identity_secret(network: &str) -> String {
    format!("{network}-admin-identity")
}

/// Annotation on members' pods: a digest of the certificates in
/// `spec.web.altServerCerts`, so that they are restarted when one changes.
pub const ANNOTATION_WEB: &str = "openziti.io/web-certificates";

/// Annotation on a `ZitiNetwork` whose controllers are being deleted with it:
/// nothing on it has to be deleted any more.
pub const ANNOTATION_NETWORK_ENDS: &str = "openziti.io/network-ends";

/// Name of the StatefulSet and of the common Service of a `ZitiController`, and
/// the beginning of its members' names.
pub fn controller_workload(controller: &str) -> String {
    format!("{controller}-controller")
}

/// Name of a member: its pod, its Service and its id in the cluster.
pub fn controller_member(controller: &str, ordinal: i32) -> String {
    format!("{controller}-controller-{ordinal}")
}

/// Name of the Secret with the root of a network's certificates, and its key.
/// No pod mounts it.
pub fn controller_root_secret(controller: &str) -> String {
    format!("{controller}-controller-root")
}

/// Name of the Secret with the certificates and keys of all members.
pub fn controller_pki_secret(controller: &str) -> String {
    format!("{controller}-controller-pki")
}

/// Name of the Certificate of a member, and of the Secret into which cert-manager
/// puts it.
pub fn member_certificate(member: &str) -> String {
    format!("{member}-certificate")
}

/// Name of the Certificate of a member's signer, and of its Secret.
pub fn member_signer(member: &str) -> String {
    format!("{member}-signer")
}

/// Name of the ConfigMap with what the network is trusted by, key `ca.crt`.
pub fn controller_trust(controller: &str) -> String {
    format!("{controller}-controller-ca")
}

/// Name of the Secret with the first administrator's name and password, where
/// the operator makes it.
pub fn controller_admin_secret(controller: &str) -> String {
    format!("{controller}-admin")
}

/// Name of the Secret by which one member is told to make the network.
pub fn controller_bootstrap_secret(controller: &str) -> String {
    format!("{controller}-controller-bootstrap")
}

/// Name of the Secret with the one-time token of the operator's own identity.
pub fn controller_operator_secret(controller: &str) -> String {
    format!("{controller}-controller-operator")
}

/// Name of the CronJob that makes backups, and of the Secret with its client
/// certificate. A CronJob's name has at most 52 characters.
pub fn controller_backup(controller: &str) -> String {
    fitting(controller, "-controller-backup", 52)
}

/// Name of the Secret with the key of a restore, and the beginning of the names
/// of its Jobs. A Job's name is a label of its pods, and so has at most 63 characters;
/// nine of them tell these Jobs apart.
pub fn controller_restore(controller: &str) -> String {
    fitting(controller, "-controller-restore", 63 - 9)
}

/// A name with an ending, of at most so many characters. A longer one is cut, and told
/// from others by a hash.
fn fitting(name: &str, ending: &str, most: usize) -> String {
    if name.len() + ending.len() <= most {
        return format!("{name}{ending}");
    }
    // FNV-1a: stable, whatever the compiler.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let keep = most.saturating_sub(ending.len() + 9);
    let head = name.get(..keep).unwrap_or(name).trim_end_matches('-');
    format!("{head}-{hash:08x}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_fits_and_shorter_ones_are_as_they_were() {
        let name = |length: usize| format!("{}b", "a".repeat(length - 1));
        assert_eq!(
            controller_backup(&name(34)),
            format!("{}-controller-backup", name(34))
        );
        assert_eq!(
            controller_restore(&name(35)),
            format!("{}-controller-restore", name(35))
        );
        for length in 1..=40 {
            let (one, other) = (name(length), "a".repeat(length));
            assert!(controller_backup(&one).len() <= 52, "{length}");
            assert!(controller_restore(&one).len() + "-01234567".len() <= 63);
            assert_ne!(controller_backup(&one), controller_backup(&other));
            assert_ne!(controller_restore(&one), controller_restore(&other));
        }
    }
}
