//! Whose a router is: two installations on one network keep off each other's routers, also where
//! both were given the same id, namespace and name.

use api::reasons::{self, types};
use api::{AdoptionPolicy, names};
use plan::edge_router::{Entity, Plan, Step};

use crate::case::{Case, condition, ours, ready_reason};

/// Uid of this installation, and of one in another cluster.
const HERE: &str = "uid-of-pier";
const THERE: &str = "uid-of-another-pier";

/// A case of an installation that has a uid.
fn case(entities: Vec<Entity>) -> Case {
    let mut case = Case::managed(entities);
    case.install_uid = Some(HERE.into());
    case
}

fn tagged(tags: &[(&str, &str)]) -> Entity {
    let mut entity = ours();
    for (key, value) in tags {
        entity.tags.insert((*key).to_owned(), (*value).to_owned());
    }
    entity
}

/// The router of an object of the same namespace and name, in another cluster whose operator was
/// given the same id.
fn twin() -> Entity {
    tagged(&[(names::TAG_UID, "u2"), (names::TAG_INSTALL_UID, THERE)])
}

fn confirmed(mut case: Case, word: &str) -> Case {
    case.view().confirmed_install = Some(word.into());
    case
}

fn by_name(mut case: Case) -> Case {
    case.object.spec.adoption_policy = AdoptionPolicy::ByName;
    case
}

fn deleted(mut case: Case) -> Case {
    case.object.metadata.deletion_timestamp = Some(crate::case::ago(1));
    case
}

fn claims(plan: &Plan) -> bool {
    plan.steps
        .iter()
        .any(|step| matches!(step, Step::Claim { .. }))
}

fn refused(plan: &Plan) -> &str {
    assert_eq!(plan.steps, []);
    assert_eq!(ready_reason(plan), reasons::NAME_TAKEN);
    &condition(plan, types::READY).message
}

#[test]
fn what_an_earlier_object_of_this_installation_left_is_taken_back() {
    let left = tagged(&[(names::TAG_UID, "u0"), (names::TAG_INSTALL_UID, HERE)]);
    assert!(claims(&case(vec![left]).plan()));
}

#[test]
fn the_twin_of_an_installation_with_the_same_id_is_refused_and_told() {
    let plan = case(vec![twin()]).plan();
    insta::assert_snapshot!(refused(&plan), @r#"the network has a router "lamp-0" (id r1) already, and it belongs to EdgeRouter coast/lamp-0 of another installation that was also given the id pier (uid uid-of-another-pier). It is left as it is. To keep both, give one of the two installations an installId of its own, and make this EdgeRouter anew with another spec.name. To take it over from an installation that is gone for good, annotate ZitiNetwork sea with openziti.io/confirm-install=uid-of-another-pier"#);
    refused(&by_name(case(vec![twin()])).plan());
    refused(&case(vec![twin()]).recorded().plan());
}

#[test]
fn the_twin_outlives_the_object_here() {
    for case in [case(vec![twin()]), by_name(case(vec![twin()])).recorded()] {
        assert_eq!(deleted(case).plan().steps, [Step::ReleaseFinalizer]);
    }
}

#[test]
fn a_router_of_another_installation_is_told_with_the_way_to_keep_both() {
    let other = tagged(&[
        (names::TAG_INSTALL, "lighthouse"),
        (names::TAG_INSTALL_UID, THERE),
    ]);
    let mut case = case(vec![other]);
    case.object.metadata.labels = Some([(names::LABEL_SET.into(), "lamp".into())].into());
    insta::assert_snapshot!(refused(&case.plan()), @r#"the network has a router "lamp-0" (id r1) already, and it belongs to EdgeRouter coast/lamp-0 of installation lighthouse (uid uid-of-another-pier). It is left as it is. To keep both, set spec.namePattern of ZitiNetwork sea to {install}-{member}, and delete this EdgeRouter, which is made anew by that name. To take it over from an installation that is gone for good, annotate ZitiNetwork sea with openziti.io/confirm-install=uid-of-another-pier"#);
    refused(&by_name(case).plan());
}

#[test]
fn an_own_router_is_found_although_a_twin_stands_before_it() {
    let mut own = ours();
    own.id = "r2".into();
    own.name = "pier-lamp-0".into();
    let mut case = case(vec![twin(), own]);
    case.object.spec.name = Some("pier-lamp-0".into());
    let plan = case.plan();
    assert_eq!(plan.status.id.as_deref(), Some("r2"));
    let steps = deleted(case).plan().steps;
    assert_eq!(steps, [Step::Delete { id: "r2".into() }]);
}

#[test]
fn an_upgrade_adds_the_uid_to_what_was_registered_before_and_no_more() {
    let mut before = ours();
    before.tags.insert("by-hand".into(), "kept".into());
    let mut case = case(vec![ours()]).recorded();
    let plan = case.plan();
    let Some(Step::Update { changes, .. }) = plan.steps.last() else {
        panic!("{:?}", plan.steps);
    };
    assert!(changes.only_mark_installation());
    assert_eq!(
        changes.tags.as_ref().unwrap().to[names::TAG_INSTALL_UID],
        HERE
    );
    case.view().entities = vec![before];
    let plan = case.plan();
    let Some(Step::Update { changes, .. }) = plan.steps.last() else {
        panic!("{:?}", plan.steps);
    };
    assert!(!changes.only_mark_installation(), "a tag is taken away");
}

#[test]
fn an_operator_without_a_uid_leaves_the_one_that_is_there() {
    let marked = tagged(&[(names::TAG_INSTALL_UID, HERE)]);
    let mut case = Case::managed(vec![marked]).recorded();
    case.object.spec.cost = 3;
    let plan = case.plan();
    let Some(Step::Update { changes, .. }) = plan.steps.last() else {
        panic!("{:?}", plan.steps);
    };
    assert_eq!(changes.tags, None);
}

#[test]
fn a_persons_word_names_the_installation_that_is_gone() {
    assert!(claims(&confirmed(case(vec![twin()]), THERE).plan()));
    // Its id is this one's as well, and says nothing.
    refused(&confirmed(case(vec![twin()]), "pier").plan());
    refused(&confirmed(case(vec![twin()]), HERE).plan());
    // What stood elsewhere there needs the router's name as well.
    let mut elsewhere = twin();
    elsewhere
        .tags
        .insert(names::TAG_NAME.into(), "beacon".into());
    let case = confirmed(case(vec![elsewhere]), THERE);
    refused(&case.plan());
    assert!(claims(&by_name(case).plan()));
}

#[test]
fn an_installation_that_was_given_another_id_keeps_its_own_routers_and_takes_no_twins() {
    // Registered by this very object while the installation was called `wharf`, as the other is.
    let own = tagged(&[
        (names::TAG_INSTALL, "wharf"),
        (names::TAG_INSTALL_UID, HERE),
    ]);
    assert!(claims(
        &confirmed(case(vec![own]).recorded(), "wharf").plan()
    ));
    let old = tagged(&[(names::TAG_INSTALL, "wharf")]);
    assert!(claims(&confirmed(case(vec![old]), "wharf").plan()));
    let mut twin = twin();
    twin.tags.insert(names::TAG_INSTALL.into(), "wharf".into());
    refused(&confirmed(case(vec![twin.clone()]), "wharf").plan());
    refused(&confirmed(by_name(case(vec![twin])), "wharf").plan());
}

#[test]
fn what_carries_no_uid_of_an_installation_is_taken_over_by_id_and_name() {
    let old = tagged(&[(names::TAG_UID, "u0")]);
    refused(&case(vec![old.clone()]).plan());
    refused(&confirmed(case(vec![old.clone()]), "pier").plan());
    assert!(claims(&confirmed(by_name(case(vec![old])), "pier").plan()));
}
