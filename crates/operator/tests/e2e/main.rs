//! The operator as a user has it: installed by its chart, on a real cluster, beside real Ziti
//! controllers, with real routers. What the README promises is tried here.
//!
//! `cargo xtask test` starts the cluster and hands it over by environment variables
//! ([`testbed::environment`]). Each test has its own namespace for routers and its own Ziti network
//! ([`stage`]), so that they can take place at the same time; one operator serves them all, and it
//! is killed and upgraded meanwhile ([`operator`]). Whoever waits here waits for a condition with a
//! deadline.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail as tests do"
)]
mod adopt;
mod backup;
mod certmanager;
mod clusters;
mod controllers;
mod convert;
mod credential;
mod data_path;
mod far;
mod forward;
mod healing;
mod leaving;
mod lost;
mod node_loss;
mod nodes;
mod objects;
mod operator;
mod outage;
mod own_node;
mod passthrough;
mod provided;
mod proxy;
mod quickstart;
mod reach;
mod removal;
mod requests;
mod rollout;
mod scaling;
mod stage;
mod steady_state;
mod storage;
mod through_ziti;
mod topologies;
mod tproxy;
mod tproxy_on_the_node;
mod traffic_while_rolling;
mod upgrade;
mod watch;
mod ways;
mod ziti_network;
