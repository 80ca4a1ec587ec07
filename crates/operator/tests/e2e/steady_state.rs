//! Nothing happens where nothing is to be done.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testbed::audit::AuditLog;
use testbed::kubernetes;

use crate::operator;
use crate::stage::{self, PATIENCE};
use crate::watch::always;

/// Longer than the operator leaves between two looks at a network at rest.
const WATCHED: Duration = Duration::from_secs(35);
/// So long without a write, and all is settled.
const SETTLED: Duration = Duration::from_secs(3);

/// A set at rest costs no write. (Writes about other tests' objects are not counted.)
#[test]
fn a_settled_set_costs_no_write() {
    stage::play("steady", async |stage| {
        let log = stage.environment.audit_log.as_ref();
        let log = log.context("the cluster has no audit log")?;
        stage.set_online("edge", 2).await?;
        let writes = |since: &AuditLog| -> Result<Vec<_>> {
            let mut writes = since.writes_by(operator::USER)?;
            writes.retain(|write| write.namespace == stage.namespace);
            Ok(writes)
        };

        let (mut since, mut begun) = (AuditLog::from_now(log), Instant::now());
        kubernetes::poll("all to settle", PATIENCE, async || {
            if !writes(&since)?.is_empty() {
                (since, begun) = (AuditLog::from_now(log), Instant::now());
            }
            Ok((begun.elapsed() >= SETTLED).then_some(()))
        })
        .await?;
        stage.give_up_turn();
        always(WATCHED, || {
            let writes = writes(&since)?;
            ensure!(writes.is_empty(), "the operator wrote {writes:?}");
            Ok(())
        })
        .await
    });
}
