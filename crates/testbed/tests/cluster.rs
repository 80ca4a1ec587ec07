//! Protects the local cluster itself: it comes up beside others, carries a Ziti controller that the
//! host reaches, has a second one beside it by a link that can be cut, and leaves nothing behind. Needs
//! root.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::cluster::{Cluster, Passage};
use testbed::command::Cmd;
use testbed::image;
use testbed::kubernetes;
use testbed::progress::Progress;
use testbed::ziti_in_cluster::{ControllerSpec, ZitiController};

const NAME: &str = "selftest";
const NETNS: &str = "/run/netns/ziti-testbed-selftest";
const NETNS_OF_SECOND: &str = "/run/netns/ziti-testbed-selftest.second";

#[tokio::test]
async fn a_cluster_carries_ziti_and_leaves_nothing() {
    let progress = Progress::new(4);
    // What an interrupted run may have left.
    progress
        .step("down", async |step| {
            Ok((Cluster::down(NAME, step).await?, String::new()))
        })
        .await
        .unwrap();
    let cluster = progress
        .step("up", async |step| {
            Ok((Cluster::up(NAME, None, step).await?, String::new()))
        })
        .await
        .unwrap();
    let dir = cluster.dir().to_path_buf();
    let outcome = play(&cluster, &progress).await;
    progress
        .step("down", async |step| {
            Ok((Cluster::down(NAME, step).await?, String::new()))
        })
        .await
        .unwrap();
    outcome.unwrap();

    assert!(!dir.exists());
    let left = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let dir = dir.to_string_lossy();
    assert!(!left("/proc/self/mountinfo").contains(&*dir));
    assert!(!Path::new(NETNS).exists());
    assert!(!Path::new(NETNS_OF_SECOND).exists());
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let command = left(&process.path().join("cmdline").to_string_lossy());
        assert!(!command.contains(&*dir), "still running: {command}");
    }
}

async fn play(cluster: &Cluster, progress: &Progress) -> anyhow::Result<()> {
    carry_ziti(cluster).await?;
    let second = progress
        .step("second", async |step| {
            Ok((cluster.start_second(step).await?, String::new()))
        })
        .await?;
    let from_first = || reaches(NETNS, &second.cluster().url());
    let from_second = || reaches(NETNS_OF_SECOND, &cluster.url());
    assert_eq!((from_first(), from_second()), (true, true), "it is open");
    second.set(Passage::Outward)?;
    assert_eq!((from_first(), from_second()), (false, true), "it is dark");
    second.set(Passage::Closed)?;
    assert_eq!((from_first(), from_second()), (false, false), "it is cut");
    second.set(Passage::Open)?;
    assert_eq!((from_first(), from_second()), (true, true), "it is healed");
    Ok(())
}

/// Whether an API server is reached from within a network namespace.
fn reaches(netns: &str, url: &str) -> bool {
    let address = url.replace("https://", "").replace(':', "/");
    Cmd::new("nsenter")
        .arg(format!("--net={netns}"))
        .args(["timeout", "2", "bash", "-c"])
        .arg(format!("exec 3<>/dev/tcp/{address}"))
        .run()
        .is_ok()
}

async fn carry_ziti(cluster: &Cluster) -> anyhow::Result<()> {
    let ziti = image::ziti()?;
    assert!(cluster.import(&ziti.controller)?);
    assert!(!cluster.import(&ziti.controller)?, "imported twice");
    let spec = ControllerSpec {
        namespace: "network".to_owned(),
        image: ziti.controller.reference.clone(),
        token_life: Duration::from_mins(5),
    };
    let client = cluster.client().await?;
    let controller = ZitiController::deploy(&client, &spec).await?;
    let first = default_admin(&controller).await?;
    controller.stop().await?;
    controller.start().await?;
    assert_eq!(default_admin(&controller).await?, first, "database lost");
    controller.rebuild().await?;
    assert_ne!(default_admin(&controller).await?, first, "database kept");
    assert!(
        cluster
            .resident_memory("ziti")?
            .is_some_and(|bytes| bytes > 10_000_000)
    );
    Ok(())
}

/// Logs in from the host, through the Service's address, and reads the administrator's id.
async fn default_admin(controller: &ZitiController) -> anyhow::Result<String> {
    let (username, password) = controller.admin().await?;
    let ca = reqwest::Certificate::from_pem(controller.ca_pem.as_bytes())?;
    let http = reqwest::Client::builder().tls_certs_only([ca]).build()?;
    let url = format!("{}/edge/management/v1", controller.url);
    // The Service's address is there a moment after its pod is ready.
    let reply = kubernetes::poll("the Service to carry", Duration::from_mins(1), async || {
        let login = json!({"username": username, "password": password});
        let request = http.post(format!("{url}/authenticate?method=password"));
        match request.json(&login).send().await {
            Err(error) if error.is_connect() => Ok(None),
            sent => Ok(Some(sent?)),
        }
    });
    let session: Value = reply.await?.error_for_status()?.json().await?;
    let token = session["data"]["token"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let found: Value = http
        .get(format!("{url}/identities?filter=isDefaultAdmin%3Dtrue"))
        .header("zt-session", token)
        .send()
        .await?
        .error_for_status()?
        .json()
        .await?;
    Ok(found["data"][0]["id"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}
