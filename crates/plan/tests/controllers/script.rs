//! What can happen, and how often.

use proptest::collection::vec;
use proptest::prelude::*;

/// What becomes of one reconcile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// All goes well.
    None,
    /// The operator ends before that step.
    Crash(u8),
    /// That step fails.
    Fail(u8),
    /// That step is carried out, and its reply is lost.
    LoseReply(u8),
}

/// What goes missing with a Secret.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Secret {
    Root,
    Certificates,
    Admin,
    Bootstrap,
    Operator,
}

/// One thing that happens. Members are picked by ordinal.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Reconcile(Fault),
    /// So much happens between its reads and its writes.
    SlowReconcile(u8),
    Tick(u8),
    /// All goes on for so many rounds.
    Flow(u8),
    Hours(i64),
    Replicas(i32),
    /// 0 and 1 work, 2 does not exist, 3 crashes.
    Image(u8),
    Restart,
    /// 0 is the default, others have names of their own.
    Advertise(u8),
    Expose(bool),
    Policies(bool),
    Pause(bool),
    Kill(i32),
    Evict(i32),
    LoseVolume(i32),
    LoseNode(i32),
    /// Its network breaks, or is mended.
    Cut(i32, bool),
    /// Every member of the cluster must run with what it was given.
    AreUpToDate,
    /// All must be as wished by now.
    IsAsWished,
    ForceDelete(i32),
    Users(usize),
    UsersLeave,
    Delete,
    KeepVolumes(bool),
    Recreate(i32),
    DeleteWorkload,
    LoseStatus,
    LoseSecret(Secret),
    /// A backup is made, if somebody leads.
    BackUp,
    WishBackups(bool),
    WishRestore(bool),
    /// Where backups are cannot be reached.
    StoreAway(bool),
    /// All that there is of the network but its backup.
    LoseAll(bool),
}

/// A world, and what happens in it.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) replicas: i32,
    pub(crate) turn: i32,
    /// How far the operator's clock is ahead of the cluster's, in seconds.
    pub(crate) skew: i64,
    pub(crate) old_names_live: bool,
    pub(crate) lingering: bool,
    pub(crate) actions: Vec<Action>,
}

fn action() -> impl Strategy<Value = Action> {
    let member = 0..5i32;
    let size = prop_oneof![Just(1), Just(3), Just(3), Just(5)];
    let fault = prop_oneof![
        3 => Just(Fault::None),
        1 => (0..4u8).prop_map(Fault::Crash),
        1 => (0..4u8).prop_map(Fault::Fail),
        1 => (0..4u8).prop_map(Fault::LoseReply),
    ];
    let life = prop_oneof![
        8 => fault.prop_map(Action::Reconcile),
        2 => (1..3u8).prop_map(Action::SlowReconcile),
        3 => (1..4u8).prop_map(Action::Tick),
        8 => (1..6u8).prop_map(Action::Flow),
        14 => (10..40u8).prop_map(Action::Flow),
        1 => prop_oneof![Just(1i64), Just(24 * 40), Just(24 * 200), Just(24 * 300), Just(24 * 400), Just(24 * 365 * 7)].prop_map(Action::Hours),
    ];
    let secret = prop_oneof![
        Just(Secret::Root),
        Just(Secret::Certificates),
        Just(Secret::Admin),
        Just(Secret::Bootstrap),
        Just(Secret::Operator)
    ];
    let wishes = prop_oneof![
        8 => size.clone().prop_map(Action::Replicas),
        5 => (0..4u8).prop_map(Action::Image),
        2 => Just(Action::Restart),
        2 => (0..3u8).prop_map(Action::Advertise),
        1 => any::<bool>().prop_map(Action::Expose),
        1 => any::<bool>().prop_map(Action::Policies),
        2 => any::<bool>().prop_map(Action::Pause),
        1 => (1..3usize).prop_map(Action::Users),
        1 => Just(Action::UsersLeave),
        2 => Just(Action::Delete),
        1 => any::<bool>().prop_map(Action::KeepVolumes),
        2 => size.prop_map(Action::Recreate),
        3 => Just(Action::BackUp),
        1 => any::<bool>().prop_map(Action::WishBackups),
        2 => any::<bool>().prop_map(Action::WishRestore),
    ];
    let accidents = prop_oneof![
        6 => member.clone().prop_map(Action::Kill),
        4 => member.clone().prop_map(Action::Evict),
        3 => member.clone().prop_map(Action::LoseVolume),
        2 => member.clone().prop_map(Action::LoseNode),
        2 => (member.clone(), any::<bool>()).prop_map(|(one, cut)| Action::Cut(one, cut)),
        2 => member.prop_map(Action::ForceDelete),
        1 => Just(Action::DeleteWorkload),
        1 => Just(Action::LoseStatus),
        1 => secret.prop_map(Action::LoseSecret),
        1 => any::<bool>().prop_map(Action::LoseAll),
        1 => any::<bool>().prop_map(Action::StoreAway),
    ];
    prop_oneof![9 => life, 4 => wishes, 3 => accidents]
}

/// A script of any kind.
pub(crate) fn script() -> impl Strategy<Value = Script> {
    let size = prop_oneof![Just(1), Just(3), Just(5)];
    (
        size,
        0..5i32,
        prop_oneof![6 => Just(0), 1 => Just(600), 1 => Just(-600)],
        any::<bool>(),
        any::<bool>(),
        vec(action(), 1..40),
    )
        .prop_map(
            |(replicas, turn, skew, old_names_live, lingering, actions)| Script {
                replicas,
                turn,
                skew,
                old_names_live,
                lingering,
                actions,
            },
        )
}
