//! What the operator may have to do in another cluster: one table, from which the
//! Role is printed that has to be applied there, and by which the operator asks
//! whether it has what it needs.

/// What is done with a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// Its API group; empty for the first one.
    pub group: &'static str,
    /// Its plural.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// For what, in words for whoever has to grant it.
    pub why: &'static str,
    /// Whether the kind may be missing in a cluster.
    pub optional: bool,
}

/// Made, compared, put back, taken away; seen by a watch when somebody else
/// changes it.
const KEPT: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
const MADE: &str = "made, put back when changed, taken away";

const fn kept(group: &'static str, resource: &'static str) -> Right {
    Right {
        group,
        resource,
        verbs: KEPT,
        why: MADE,
        optional: false,
    }
}

/// All of them, within the one namespace.
pub const RIGHTS: &[Right] = &[
    Right {
        group: "",
        resource: "namespaces",
        verbs: &["get"],
        why: "tells this namespace from another one of its name",
        optional: false,
    },
    kept("apps", "statefulsets"),
    kept("", "services"),
    kept("", "configmaps"),
    Right {
        why: "the tokens of members",
        ..kept("", "secrets")
    },
    kept("policy", "poddisruptionbudgets"),
    kept("networking.k8s.io", "ingresses"),
    kept("networking.k8s.io", "networkpolicies"),
    Right {
        // Not watched: a cluster may lack the kind.
        verbs: &["get", "list", "create", "patch", "delete"],
        optional: true,
        ..kept("gateway.networking.k8s.io", "tlsroutes")
    },
    Right {
        group: "",
        resource: "pods",
        verbs: &["list", "watch", "delete"],
        why: "how members do, and their rollout",
        optional: false,
    },
    Right {
        group: "",
        resource: "persistentvolumeclaims",
        verbs: &["list", "watch", "delete"],
        why: "the volume of a member that left",
        optional: false,
    },
    Right {
        group: "events.k8s.io",
        resource: "events",
        verbs: &["list"],
        why: "why pods are refused stands nowhere else",
        optional: false,
    },
];

/// What sets with one router per node need beside, for the whole cluster.
pub const NODES: Right = Right {
    group: "",
    resource: "nodes",
    verbs: &["list", "watch"],
    why: "which nodes there are, and their labels",
    optional: true,
};

impl Right {
    /// One verb of it, as a status shows it: `verb resource` or
    /// `verb resource.group`.
    pub fn named(&self, verb: &str) -> String {
        if self.group.is_empty() {
            format!("{verb} {}", self.resource)
        } else {
            format!("{verb} {}.{}", self.resource, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::extra::KINDS;
    use std::collections::BTreeSet;

    #[test]
    fn no_right_stands_twice_and_each_kind_that_a_set_may_have_is_there() {
        let named: Vec<String> = RIGHTS
            .iter()
            .flat_map(|right| right.verbs.iter().map(|verb| right.named(verb)))
            .collect();
        let unique: BTreeSet<&String> = named.iter().collect();
        assert_eq!(unique.len(), named.len());
        for kind in KINDS {
            let known = RIGHTS
                .iter()
                .find(|right| right.group == kind.group && right.resource == kind.plural);
            let known = known.unwrap_or_else(|| panic!("no right for {}", kind.plural));
            assert_eq!(known.optional, kind.optional, "{}", kind.plural);
        }
    }
}
