//! The operator against a real etcd, a real API server and a real Ziti controller, without a node.
//!
//! The operator is the program itself, run as a child process with the rights that the chart gives
//! it, in a namespace of its own for each test ([`world`], [`operator`]). StatefulSets make real
//! pods and claims; what a kubelet would do with them is played by [`player`], which is honest about
//! it. Whoever waits here waits for a condition with a deadline.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests fail and tell as tests do"
)]

mod bad_network;
mod bad_set;
mod bad_tokens;
mod clusters;
mod convert;
mod credentials;
mod documented;
mod drift;
mod edge_router;
mod event_stream;
mod issuer;
mod leader;
mod leases;
mod modes;
mod network_identity;
mod operator;
mod ownership;
mod paused;
mod placement;
mod plan_controller;
mod plan_mode;
mod player;
mod rules;
mod rules_backup;
mod rules_controller;
mod rules_modes;
mod rules_reach;
mod rules_zitirouter;
mod set;
mod set_life;
mod set_removal;
mod silence;
mod spread;
mod steady_state;
mod surface;
mod two_operators;
mod world;
mod ziti_network;
