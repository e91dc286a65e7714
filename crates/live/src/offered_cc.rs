//! The congestion controls that the kernel has at hand.

use std::{fs, io};

const OFFERED: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The congestion controls that this kernel offers, modules that are not loaded left out.
///
/// # Errors
/// The kernel does not say.
pub fn available_congestion_controls() -> Result<Vec<String>, io::Error> {
    let names = fs::read_to_string(OFFERED)
        .map_err(|error| io::Error::new(error.kind(), format!("{OFFERED}: {error}")))?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}
