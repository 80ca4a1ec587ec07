//! Free ports on loopback.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

/// Below the range from which the kernel takes ports for outgoing connections: a controller that is
/// down for a moment must find its port free again.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// A port that nobody listens on now, and that this process has not been given before. Processes
/// begin at different places.
pub(crate) fn free() -> Result<u16> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let start = process::id().wrapping_mul(61);
    for _ in 0..COUNT {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + start.wrapping_add(given) % COUNT;
        let port = u16::try_from(port)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free between {FIRST} and {}", FIRST + COUNT)
}
