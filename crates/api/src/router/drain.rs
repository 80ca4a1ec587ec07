//! How the routers of a set leave: a part of `ZitiRouter`'s spec.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// What a router does before its pod goes: new circuits are steered to the
/// other routers that host the same services, and running ones get time. A
/// router without circuits goes at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// How many seconds running circuits have to end. 0: none, and no new ones
    /// are steered away. Default: 15.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 0, max = 3600))]
    pub timeout_seconds: i32,
}

fn default_timeout() -> i32 {
    15
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            timeout_seconds: default_timeout(),
        }
    }
}
