//! Free ports on loopback.

use std::net::TcpListener;

use anyhow::{Context, Result};

/// A port that nobody listens on now. Another program may take it before it is used; the range is
/// wide and the moment short.
pub(super) fn free() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    let address = listener.local_addr().context("looking for a free port")?;
    Ok(address.port())
}
