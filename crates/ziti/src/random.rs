//! Random texts, for passwords.

use aws_lc_rs::rand;
use secrecy::SecretString;
use snafu::Snafu;

/// The system has no randomness to give.
#[derive(Debug, Snafu)]
#[snafu(display("the system has no random numbers to give"))]
pub struct NoRandomness;

/// A password of 128 bits, in hexadecimal digits.
pub fn password() -> Result<SecretString, NoRandomness> {
    let mut bytes = [0_u8; 16];
    rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(hex::encode(bytes).into())
}
