//! What a policy costs in the kernel, with whoever decides beside it: CPU per GB against the kernel's CUBIC, and the time from
//! a report in the kernel to the decision about it.
//!
//! The card is the argument (`cargo bench ... -- CARD.toml`); one that moves nothing, so that what differs is what it costs.
//! Needs root and `ip`.

use std::io;
use std::path::Path;

use skyhop_policyd::{DecisionServer, hold_policy};

#[path = "../../kernel/benches/pair/mod.rs"]
mod pair;

const BENCH: &str = "policy_cost";
/// Bytes per second: the link of the scenarios …
const PACING_RATE: u32 = 150_000_000 / 8;
/// … for so long.
const SECONDS: usize = 10;

fn main() -> io::Result<()> {
    // Cargo adds one of its own.
    let Some(card) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) else {
        println!("{BENCH}: skipped: no card: skyhop's scripts/kernel_costs.py gives it one");
        return Ok(());
    };
    let loaded = skyhop_ccfile::load_policy(Path::new(&card)).map_err(io::Error::other)?;
    if !pair::open(BENCH)? {
        return Ok(());
    }
    let begin = || hold_policy(&card, &loaded.policy, &loaded.parameters(&[]), None);
    let (held, server) = match begin() {
        Ok(begun) => begun,
        Err(error) => {
            println!("{BENCH}: skipped: {error}");
            return Ok(());
        }
    };
    pair::compare("policy with its server", "cubic", held.kernel_name())?;
    report(server, "at full speed")?;
    let (held, server) = begin().map_err(io::Error::other)?;
    let connection = pair::connect()?;
    pair::choose(&connection, held.kernel_name())?;
    let rate = PACING_RATE.to_ne_bytes();
    pair::set(&connection, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate)?;
    pair::send(connection, PACING_RATE as usize * SECONDS)?;
    report(server, "at 150 Mbit/s")
}

/// Prints how long decisions took.
fn report(server: DecisionServer, traffic: &str) -> io::Result<()> {
    let served = server.join().map_err(io::Error::other)?;
    if let Some(failure) = served.failure {
        return Err(io::Error::other(failure));
    }
    let us = |quantile| served.latencies.quantile_us(quantile).unwrap_or(f64::NAN);
    println!(
        "report in the kernel to decision, {traffic}: p50 {:.0} us, p99 {:.0} us, max {:.0} us ({} decisions)",
        us(0.5),
        us(0.99),
        us(1.0),
        served.outputs.decisions,
    );
    Ok(())
}
