//! Condition types and reasons. They are part of the API: alerts and scripts
//! match on them, so a reason is never renamed, only added.

/// Condition types.
pub mod types {
    /// The object does what it is for.
    pub const READY: &str = "Ready";
    /// The operator is changing something.
    pub const PROGRESSING: &str = "Progressing";
    /// Something is wrong that needs a look, although part of it may work.
    pub const DEGRADED: &str = "Degraded";
    /// The router exists on the network under our tags.
    pub const REGISTERED: &str = "Registered";
    /// The router holds an identity.
    pub const ENROLLED: &str = "Enrolled";
    /// The network sees the router connected and in sync.
    pub const ONLINE: &str = "Online";
    /// The router's certificate runs out soon, and should have been renewed.
    pub const CERTIFICATE_EXPIRING: &str = "CertificateExpiring";
    /// The management API answers and accepts the credential.
    pub const REACHABLE: &str = "Reachable";
    /// The last backup that was due has been made.
    pub const BACKED_UP: &str = "BackedUp";
}

/// All is well.
pub const READY: &str = "Ready";
/// Not looked at yet.
pub const PENDING: &str = "Pending";
/// The object is being deleted.
pub const DELETING: &str = "Deleting";
/// Nothing is written for the object, since its spec says so.
pub const PAUSED: &str = "Paused";

// ZitiNetwork, and EdgeRouters that wait for one.

/// The management API answers and accepts the credential.
pub const CONNECTED: &str = "Connected";
/// No endpoint of the management API answers.
pub const CONTROLLER_UNREACHABLE: &str = "ControllerUnreachable";
/// The controller's certificate does not verify against the trust given.
pub const CONTROLLER_NOT_TRUSTED: &str = "ControllerNotTrusted";
/// The controller refused the credential.
pub const BAD_CREDENTIALS: &str = "BadCredentials";
/// The credential may not do what is asked.
pub const FORBIDDEN: &str = "Forbidden";
/// A Secret or ConfigMap named in the spec is not there.
pub const SOURCE_MISSING: &str = "SourceMissing";
/// A Secret or ConfigMap named in the spec lacks the key.
pub const KEY_MISSING: &str = "KeyMissing";
/// A Secret or ConfigMap named in the spec holds something else.
pub const SOURCE_INVALID: &str = "SourceInvalid";
/// The spec asks for something that cannot be.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// Another network answers at this address than the one known.
pub const NETWORK_CHANGED: &str = "NetworkChanged";
/// The network belongs to another installation of the operator.
pub const FOREIGN_INSTALL: &str = "ForeignInstall";
/// EdgeRouters still need this network.
pub const IN_USE: &str = "InUse";
/// The network ends with its ZitiController, which is being deleted.
pub const NETWORK_ENDS: &str = "NetworkEnds";
/// No credential is given: only provided tokens can be used.
pub const NO_CREDENTIAL: &str = "NoCredential";

// EdgeRouter.

/// The `ZitiNetwork` named does not exist.
pub const NETWORK_NOT_FOUND: &str = "NetworkNotFound";
/// The `ZitiNetwork` named is not ready.
pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
/// The router is registered.
pub const REGISTERED: &str = "Registered";
/// The router is known from its provided token.
pub const PROVIDED: &str = "Provided";
/// A router of this name exists and is not ours.
pub const NAME_TAKEN: &str = "NameTaken";
/// The name cannot be held by the network.
pub const NAME_INVALID: &str = "NameInvalid";
/// The router that we registered is no longer on the network.
pub const ENTITY_MISSING: &str = "EntityMissing";
/// The controller refused the request.
pub const REFUSED: &str = "Refused";
/// The token waits for its router.
pub const TOKEN_READY: &str = "TokenReady";
/// The token is not a Ziti enrollment token for an edge router.
pub const TOKEN_MALFORMED: &str = "TokenMalformed";
/// The token ran out unused.
pub const TOKEN_EXPIRED: &str = "TokenExpired";
/// The token was used already.
pub const TOKEN_SPENT: &str = "TokenSpent";
/// The token was refused.
pub const TOKEN_REFUSED: &str = "TokenRefused";
/// There is no token.
pub const TOKEN_MISSING: &str = "TokenMissing";
/// The same token is given to two members.
pub const TOKEN_DUPLICATE: &str = "TokenDuplicate";
/// The token is for another network.
pub const TOKEN_OF_ANOTHER_NETWORK: &str = "TokenOfAnotherNetwork";
/// The volume holds the identity of another router than the token names.
pub const IDENTITY_MISMATCH: &str = "IdentityMismatch";
/// The router lost its identity.
pub const IDENTITY_LOST: &str = "IdentityLost";
/// The router holds its identity.
pub const ENROLLED: &str = "Enrolled";
/// The router is connected and in sync.
pub const ONLINE: &str = "Online";
/// The router is not connected.
pub const OFFLINE: &str = "Offline";
/// The router is connected and not in sync yet.
pub const SYNCING: &str = "Syncing";
/// The network cannot be asked: no credential.
pub const UNKNOWN: &str = "Unknown";
/// The router's certificate is valid for longer than a renewal takes.
pub const CERTIFICATE_VALID: &str = "CertificateValid";
/// The router's certificate runs out within days, and was not renewed.
pub const CERTIFICATE_EXPIRING: &str = "CertificateExpiring";
/// The router's certificate ran out.
pub const CERTIFICATE_EXPIRED: &str = "CertificateExpired";
/// A router still runs with this identity.
pub const STILL_ONLINE: &str = "StillOnline";

// What a pod's agent reports, besides those above.

/// The identity's certificate ran out, and there is no token to get another.
pub const IDENTITY_EXPIRED: &str = "IdentityExpired";
/// Nobody says where the controllers are.
pub const ENDPOINTS_MISSING: &str = "EndpointsMissing";
/// The volume of the identity cannot be read or written.
pub const VOLUME_NOT_WRITABLE: &str = "VolumeNotWritable";
/// The controller does not sign certificates with these names.
pub const CSR_REFUSED: &str = "CsrRefused";
/// A name that no certificate can hold.
pub const NAMES_INVALID: &str = "NamesInvalid";
/// The certificate lacks a name that is advertised, and no other was to be had.
pub const NAMES_MISSING: &str = "NamesMissing";
/// The list of the names that the certificate must hold cannot be read.
pub const NAMES_UNREADABLE: &str = "NamesUnreadable";
/// The CA bundle given to the agent cannot be read.
pub const CA_BUNDLE_INVALID: &str = "CaBundleInvalid";
/// The controller refused the enrollment in a way that has no name of its own.
pub const ENROLLMENT_REJECTED: &str = "EnrollmentRejected";
/// The reply to an enrollment was lost: the token may be spent.
pub const REPLY_LOST: &str = "ReplyLost";
/// The token is a Ziti token, and not for a router.
pub const TOKEN_WRONG_KIND: &str = "TokenWrongKind";
/// The pod was stopped while it enrolled.
pub const INTERRUPTED: &str = "Interrupted";

/// Every reason that an agent may give for a pod without an identity.
pub const OF_AGENT: [&str; 20] = [
    TOKEN_MISSING,
    TOKEN_MALFORMED,
    TOKEN_WRONG_KIND,
    TOKEN_SPENT,
    TOKEN_EXPIRED,
    TOKEN_REFUSED,
    IDENTITY_MISMATCH,
    IDENTITY_EXPIRED,
    CONTROLLER_UNREACHABLE,
    CONTROLLER_NOT_TRUSTED,
    CSR_REFUSED,
    NAMES_INVALID,
    NAMES_MISSING,
    NAMES_UNREADABLE,
    ENDPOINTS_MISSING,
    CA_BUNDLE_INVALID,
    VOLUME_NOT_WRITABLE,
    ENROLLMENT_REJECTED,
    REPLY_LOST,
    INTERRUPTED,
];

// ZitiRouter.

/// Members are being started, stopped or replaced.
pub const ROLLING_OUT: &str = "RollingOut";
/// Members are not online yet.
pub const MEMBERS_NOT_READY: &str = "MembersNotReady";
/// Members are stopping.
pub const SCALING_DOWN: &str = "ScalingDown";
/// The state is the one wished for.
pub const SETTLED: &str = "Settled";
/// A member needs a look.
pub const MEMBER_FAILING: &str = "MemberFailing";
/// Tokens are written in the ZitiRouter itself.
pub const INLINE_TOKENS: &str = "InlineTokens";
/// A router cannot be told of a Ziti service of this name.
pub const SERVICE_NAME_UNUSABLE: &str = "ServiceNameUnusable";
/// The router would expand a `$` in this string.
pub const DOLLAR_IN_STRING: &str = "DollarInString";
/// `extraConfig` holds a key that the operator must own.
pub const CONFIG_KEY_REFUSED: &str = "ConfigKeyRefused";
/// A router would not take its configuration.
pub const CONFIG_INVALID: &str = "ConfigInvalid";
/// A member waits for the address at which it is to be advertised.
pub const ADDRESS_PENDING: &str = "AddressPending";
/// A member did not come online in time, and the others wait for it.
pub const ROLLOUT_STALLED: &str = "RolloutStalled";

// ZitiController.

/// The root of the network's certificates is gone, or is another one.
pub const ROOT_UNUSABLE: &str = "RootUnusable";
/// What cert-manager's issuer gives cannot be used, or there is no cert-manager.
pub const ISSUER_UNUSABLE: &str = "IssuerUnusable";
/// cert-manager has not issued a certificate that is needed.
pub const CERTIFICATES_PENDING: &str = "CertificatesPending";
/// The issuer signs with another authority than the one that the network trusts.
pub const AUTHORITY_CHANGED: &str = "AuthorityChanged";
/// The image is of a version that the network cannot go to.
pub const VERSION_REFUSED: &str = "VersionRefused";
/// No majority of the cluster's members is connected.
pub const QUORUM_LOST: &str = "QuorumLost";
/// The cluster had a leader moments ago, and is electing another.
pub const ELECTING: &str = "Electing";
/// Somebody else's controller is in the cluster.
pub const FOREIGN_MEMBER: &str = "ForeignMember";
/// The members run different versions.
pub const VERSIONS_DIFFER: &str = "VersionsDiffer";
/// The network was made, and no member has its database any more.
pub const DATABASE_LOST: &str = "DatabaseLost";
/// The network is being restored from a backup.
pub const RESTORING: &str = "Restoring";
/// The network could not be restored; it is tried again.
pub const RESTORE_FAILED: &str = "RestoreFailed";
/// The last backup has been made.
pub const SAVED: &str = "Saved";
/// The Job of the last backup failed and left no word.
pub const BACKUP_FAILED: &str = "BackupFailed";

// What the Job of a backup, or of a restore, reports.

/// There is no backup of that name.
pub const NO_BACKUP: &str = "NoBackup";
/// Where backups are cannot be reached.
pub const UNREACHABLE: &str = "Unreachable";
/// Where backups are refuses access.
pub const ACCESS_DENIED: &str = "AccessDenied";
/// The identity given is of none of the backup's recipients.
pub const CANNOT_DECRYPT: &str = "CannotDecrypt";
/// The backup is not whole.
pub const DAMAGED: &str = "Damaged";
/// The backup is of another network.
pub const OTHER_NETWORK: &str = "OtherNetwork";
/// No member of the cluster answers.
pub const MEMBERS_UNREACHABLE: &str = "MembersUnreachable";
/// No member of the cluster gave a snapshot.
pub const NOT_READY: &str = "NotReady";
/// There is no room.
pub const NO_SPACE: &str = "NoSpace";
/// What the Job was given makes no sense.
pub const MISCONFIGURED: &str = "Misconfigured";

/// Every reason that the Job of a backup, or of a restore, may give.
pub const OF_JOBS: [&str; 11] = [
    NO_BACKUP,
    UNREACHABLE,
    ACCESS_DENIED,
    CANNOT_DECRYPT,
    DAMAGED,
    OTHER_NETWORK,
    MEMBERS_UNREACHABLE,
    NOT_READY,
    NO_SPACE,
    MISCONFIGURED,
    INTERRUPTED,
];

// ZitiCluster.

/// The cluster's API does not answer.
pub const CLUSTER_UNREACHABLE: &str = "ClusterUnreachable";
/// The certificate of the cluster's API does not verify against the trust given.
pub const CLUSTER_NOT_TRUSTED: &str = "ClusterNotTrusted";
/// Another cluster, or another namespace, answers than the one known.
pub const CLUSTER_CHANGED: &str = "ClusterChanged";
/// The credential may not do everything that is needed there.
pub const PERMISSIONS_MISSING: &str = "PermissionsMissing";
/// The kubeconfig would run a program, read files, or verify nothing.
pub const CREDENTIAL_REFUSED: &str = "CredentialRefused";
/// The `ZitiCluster` that a `ZitiRouter` names does not exist.
pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
/// A person has said that the cluster will never come back.
pub const CLUSTER_ABANDONED: &str = "ClusterAbandoned";
/// The namespace does not exist there.
pub const NAMESPACE_MISSING: &str = "NamespaceMissing";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The reasons in this file: its constants outside of a module.
    fn reasons() -> BTreeSet<&'static str> {
        let lines = include_str!("reasons.rs").lines();
        let constants = lines.filter_map(|line| line.strip_prefix("pub const "));
        let constants = constants.filter(|line| line.contains(": &str"));
        constants
            .map(|line| {
                line.split('"')
                    .nth(1)
                    .unwrap_or_else(|| panic!("no text in one line: {line}"))
            })
            .collect()
    }

    /// The reasons that have a row in the documentation.
    fn rows() -> BTreeSet<&'static str> {
        let lines = include_str!("../../../docs/troubleshooting.md").lines();
        lines
            .filter_map(|line| line.strip_prefix("| `"))
            .filter_map(|line| line.split('`').next())
            .collect()
    }

    #[test]
    fn each_reason_is_explained_and_nothing_else_is() {
        assert!(reasons().contains(super::READY));
        assert_eq!(reasons(), rows());
    }
}
