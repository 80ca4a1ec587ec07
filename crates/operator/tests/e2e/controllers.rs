//! Ziti networks that the operator runs itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiController, ZitiNetwork, ZitiRouter, names, reasons};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Secret};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::kubernetes;
use tokio::sync::oneshot;
use ziti::management::{
    Credential, EdgeRouterEntity, Filter, ManagementClient, NewEdgeRouter, Options, PolicyKind,
};
use ziti::trust::CaBundle;

use crate::forward::Forward;
use crate::objects::{reason, truth};
use crate::stage::{self, PATIENCE, Stage, say};

/// How long a write is tried on all members: while another leads from now on, nobody takes one.
const WRITE_WITHIN: Duration = Duration::from_secs(20);

/// The name of the two policies that the operator makes.
const POLICY: &str = "ziti-operator-all-routers";

pub(crate) const CONTROLLER: &str = "ziti";

/// Applies a ZitiController with `spec` besides what all have here.
pub(crate) async fn controller(stage: &Stage, mut spec: Value) -> Result<()> {
    spec["image"] = json!(stage.environment.controller_image);
    spec["storage"] = json!({"size": "100Mi"});
    let object = json!({
        "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiController",
        "metadata": {"name": CONTROLLER}, "spec": spec,
    });
    stage.apply(object).await
}

/// Waits until all members, so many, are in the cluster and nothing is left to do.
pub(crate) async fn until_settled(stage: &Stage, members: i32) -> Result<ZitiController> {
    let what = format!("settled with {members} members");
    stage
        .until(CONTROLLER, &what, |object: &ZitiController| {
            object.status.as_ref().is_some_and(|status| {
                status.observed_generation == object.metadata.generation
                    && status.ready_replicas == members
                    && i32::try_from(status.members.len()) == Ok(members)
                    && truth(&status.conditions, "Ready") == Some("True")
                    && truth(&status.conditions, "Progressing") == Some("False")
            })
        })
        .await
}

/// The network as its administrator sees it, through one member.
pub(crate) struct Network {
    pub(crate) management: ManagementClient,
    _way: Forward,
}

impl Network {
    pub(crate) async fn through(stage: &Stage, member: &str) -> Result<Self> {
        let admin: Secret = stage
            .get(&names::controller_admin_secret(CONTROLLER))
            .await?;
        let root: Secret = stage
            .get(&names::controller_root_secret(CONTROLLER))
            .await?;
        let text = |secret: &Secret, key: &str| {
            let value = secret.data.as_ref().and_then(|data| data.get(key));
            let value = value.with_context(|| format!("a Secret has no {key}"))?;
            String::from_utf8(value.0.clone()).context("a Secret that is no text")
        };
        let way = Forward::to(stage, member).await?;
        let endpoint = format!("https://localhost:{}", way.port);
        let endpoint = endpoint.parse().context("reading the address")?;
        let ca = CaBundle::from_pem(&text(&root, "ca.crt")?).context("reading the root")?;
        let credential = Credential::Password {
            username: text(&admin, "username")?,
            password: text(&admin, "password")?.into(),
        };
        // A pod that is gone answers nothing for a while.
        let options = Options {
            timeout: Duration::from_secs(5),
        };
        let management = ManagementClient::new(&[endpoint], &ca, Some(credential), &options)
            .context("making a management client")?;
        Ok(Self {
            management,
            _way: way,
        })
    }

    pub(crate) async fn expect_online(&self, routers: &[&str]) -> Result<()> {
        let listed = self.management.edge_routers(&Filter::all()).await;
        let mut online: Vec<String> = listed
            .context("listing the network's routers")?
            .items
            .into_iter()
            .filter(EdgeRouterEntity::is_in_service)
            .map(|router| router.name)
            .collect();
        online.sort();
        ensure!(online == routers, "{online:?} are online, not {routers:?}");
        Ok(())
    }

    pub(crate) async fn expect_policies(&self) -> Result<()> {
        for kind in [PolicyKind::EdgeRouter, PolicyKind::ServiceEdgeRouter] {
            let found = self.management.policy_named(kind, POLICY).await;
            let found = found.context("looking for a policy")?;
            let policy = found.with_context(|| format!("there is no {kind:?} policy"))?;
            ensure!(policy.edge_router_roles == ["#all"], "{policy:?}");
        }
        Ok(())
    }

    /// A write as any other.
    pub(crate) async fn write(&self, name: &str) -> Result<()> {
        let router = NewEdgeRouter {
            name: name.to_owned(),
            ..NewEdgeRouter::default()
        };
        let created = self.management.create_edge_router(&router).await;
        created.with_context(|| format!("registering {name}"))?;
        Ok(())
    }
}

/// A whole network in one apply: a controller and two routers. It goes by one delete, comes back as
/// the same network by one apply, is not taken away from its routers, and ends with its namespace.
#[test]
fn a_whole_network_comes_by_one_apply_and_goes_by_one_delete() {
    stage::play_alone("network", async |stage| {
        let apply = async || {
            controller(stage, json!({"bootstrapPolicies": "AllRouters"})).await?;
            stage
                .apply(json!({
                    "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiRouter",
                    "metadata": {"name": "edge"},
                    "spec": {"networkRef": {"name": CONTROLLER}, "replicas": 2},
                }))
                .await?;
            stage.until_online("edge", 2).await?;
            until_settled(stage, 1).await
        };
        let begun = Instant::now();
        let made = apply().await?;
        say(&format!(
            "from apply to a network with two routers: {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
        let found: ZitiNetwork = stage.get(CONTROLLER).await?;
        let identity = found.status.and_then(|status| status.network_identity);
        ensure!(identity.is_some(), "the network has no identity");
        let ziti = Network::through(stage, "ziti-controller-0").await?;
        ziti.expect_online(&["edge-0", "edge-1"]).await?;
        ziti.expect_policies().await?;

        let remove = async || {
            let params = DeleteParams::background();
            stage.delete::<ZitiController>(CONTROLLER, &params).await?;
            stage.delete::<ZitiRouter>("edge", &params).await?;
            stage.until_gone::<ZitiRouter>("edge").await?;
            stage.until_gone::<EdgeRouter>("edge-0").await?;
            stage.until_gone::<ZitiController>(CONTROLLER).await
        };
        remove().await?;
        let pods = stage.list::<Pod>().await?;
        ensure!(pods.is_empty(), "{} pods are left", pods.len());

        let again = apply().await?;
        let key =
            |object: &ZitiController| object.status.clone().and_then(|status| status.root_key);
        ensure!(key(&made) == key(&again), "it has another root");
        let found: ZitiNetwork = stage.get(CONTROLLER).await?;
        let now = found.status.and_then(|status| status.network_identity);
        ensure!(now == identity, "it is another network");

        Box::pin(held_for_its_routers(stage)).await?;
        Box::pin(ends_with_its_namespace(stage)).await
    });
}

/// Whoever deletes the controller alone takes it away from nobody, also where garbage collection begins
/// with what belongs to it.
async fn held_for_its_routers(stage: &Stage) -> Result<()> {
    let pod: Pod = stage.get("ziti-controller-0").await?;
    let foreground = DeleteParams::foreground();
    stage
        .delete::<ZitiController>(CONTROLLER, &foreground)
        .await?;
    stage
        .until(CONTROLLER, "held", |object: &ZitiController| {
            let conditions = object.status.iter().flat_map(|status| &status.conditions);
            let conditions: Vec<_> = conditions.cloned().collect();
            reason(&conditions, "Ready") == Some(reasons::IN_USE)
        })
        .await?;
    let still: Pod = stage.get("ziti-controller-0").await?;
    ensure!(still.uid() == pod.uid(), "its pod was replaced");
    ensure!(
        still.metadata.deletion_timestamp.is_none(),
        "its pod is being deleted"
    );
    stage.until_online("edge", 2).await?;
    Ok(())
}

/// The end of the namespace is the end of all that is in it.
async fn ends_with_its_namespace(stage: &Stage) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let params = DeleteParams::default();
    let deleted = namespaces.delete(&stage.namespace, &params).await;
    deleted.context("deleting the namespace")?;
    let gone = |object: Option<&Namespace>| object.is_none();
    kubernetes::wait_for(namespaces, &stage.namespace, "gone", gone, PATIENCE).await?;
    Ok(())
}

/// Three members find together; one whose pod is killed while it leads is replaced by another, and
/// the network takes writes again; one that loses its volume comes back; five become three and one.
#[test]
fn a_cluster_forms_survives_its_leader_and_changes_its_size() {
    stage::play_alone("cluster", async |stage| {
        controller(
            stage,
            json!({"replicas": 3, "bootstrapPolicies": "AllRouters"}),
        )
        .await?;
        let begun = Instant::now();
        let formed = until_settled(stage, 3).await?;
        let took = begun.elapsed().as_secs_f64();
        say(&format!("from apply to a cluster of three: {took:.1} s"));

        // The leader's pod is killed.
        let leader = leader(&formed)?;
        let other = [
            "ziti-controller-0",
            "ziti-controller-1",
            "ziti-controller-2",
        ]
        .into_iter()
        .find(|member| *member != leader)
        .context("there is nobody else")?;
        let ziti = Network::through(stage, other).await?;
        let kill = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        stage.delete::<Pod>(&leader, &kill).await?;
        let killed = Instant::now();
        kubernetes::poll("a write to be taken", Duration::from_mins(1), async || {
            // Another each time: one whose answer was lost may have been taken.
            let name = format!("after-the-leader-{}", killed.elapsed().as_millis());
            Ok(ziti.write(&name).await.ok())
        })
        .await?;
        let took = killed.elapsed().as_secs_f64();
        say(&format!(
            "writes are taken again {took:.1} s after the leader was killed"
        ));
        until_settled(stage, 3).await?;

        // A follower loses its volume.
        let now: ZitiController = stage.get(CONTROLLER).await?;
        let follower = ["ziti-controller-2", "ziti-controller-1"]
            .into_iter()
            .find(|member| {
                Some(*member)
                    != now
                        .status
                        .as_ref()
                        .and_then(|status| status.leader.as_deref())
            })
            .context("there is no follower")?;
        let claim = format!("data-{follower}");
        stage
            .delete::<PersistentVolumeClaim>(&claim, &DeleteParams::default())
            .await?;
        stage.delete::<Pod>(follower, &kill).await?;
        stage.until_gone::<PersistentVolumeClaim>(&claim).await?;
        until_settled(stage, 3).await?;

        for members in [5, 3, 1] {
            stage
                .patch::<ZitiController>(CONTROLLER, json!({"spec": {"replicas": members}}))
                .await?;
            let begun = Instant::now();
            let object = until_settled(stage, members).await?;
            let took = begun.elapsed().as_secs_f64();
            say(&format!("{members} members after {took:.1} s"));
            let leader = self::leader(&object)?;
            let ziti = Network::through(stage, &leader).await?;
            ziti.write(&format!("at-{members}")).await?;
        }
        let claims = stage.list::<PersistentVolumeClaim>().await?;
        let left: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
        ensure!(
            left == ["data-ziti-controller-0"],
            "volumes are left: {left:?}"
        );
        Ok(())
    });
}

pub(crate) fn leader(object: &ZitiController) -> Result<String> {
    let status = object.status.as_ref();
    status
        .and_then(|status| status.leader.clone())
        .context("nobody leads")
}

/// A change reaches the members one at a time, the leader last, and every write is taken meanwhile, by
/// one member or another.
#[test]
fn a_change_reaches_one_member_at_a_time_and_the_network_takes_writes_all_the_while() {
    stage::play_alone("controllers-roll", async |stage| {
        controller(stage, json!({"replicas": 3})).await?;
        let formed = until_settled(stage, 3).await?;
        let leader = leader(&formed)?;
        let mut others = Vec::new();
        for member in [
            "ziti-controller-0",
            "ziti-controller-1",
            "ziti-controller-2",
        ] {
            others.push(Network::through(stage, member).await?);
        }
        let (stop, stopped) = oneshot::channel();
        let writer = tokio::spawn(write_on(others, WRITE_WITHIN, stopped));
        let restart = json!({"spec": {"restartAt": "2026-01-01T00:00:00Z"}});
        let begun = Instant::now();
        stage.patch::<ZitiController>(CONTROLLER, restart).await?;
        until_settled(stage, 3).await?;
        let took = begun.elapsed().as_secs_f64();
        drop(stop);
        let (tried, failed, longest) = writer.await.context("writing")?;
        let told = format!(
            "three members in {took:.1} s; {failed} of {tried} writes failed, and the longest took {:.2} s",
            longest.as_secs_f64()
        );
        say(&told);
        ensure!(
            self::leader(&stage.get(CONTROLLER).await?)? != leader,
            "the leader was not restarted"
        );
        ensure!(tried > 10, "only {tried} writes were tried");
        ensure!(failed == 0, "{told}");
        Ok(())
    });
}

/// Writes four times a second through the first member that takes it, and tries again for up to
/// `within`. Returns how often it wrote, how many of them no member took in time, and the longest
/// that one had to wait.
pub(crate) async fn write_on(
    members: Vec<Network>,
    within: Duration,
    mut stopped: oneshot::Receiver<()>,
) -> (usize, usize, Duration) {
    let mut pace = tokio::time::interval(Duration::from_millis(250));
    let (mut tried, mut failed, mut longest) = (0, 0, Duration::ZERO);
    loop {
        tokio::select! {
            _ = pace.tick() => {}
            _ = &mut stopped => return (tried, failed, longest),
        }
        tried += 1;
        let begun = Instant::now();
        let taken = tokio::time::timeout(within, taken_by_one(&members, tried));
        failed += usize::from(taken.await.is_err());
        longest = longest.max(begun.elapsed());
    }
}

/// Writes through one member after another until one takes it.
async fn taken_by_one(members: &[Network], number: usize) {
    let mut round = 0_usize;
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    loop {
        pace.tick().await;
        for (index, member) in members.iter().enumerate() {
            let name = format!("write-{number}-{round}-{index}");
            if member.write(&name).await.is_ok() {
                return;
            }
        }
        round += 1;
    }
}
