//! Cost of a policy in the kernel together with its decision server: CPU per GB compared with the kernel's CUBIC,
//! and the latency from a report in the kernel to the decision about it.
//!
//! The argument is a card (`cargo bench ... -- CARD.toml`) that changes neither window nor rate, so that the
//! difference to CUBIC is the policy's cost. Needs root and `ip`.

use std::io;
use std::path::Path;

use skyhop_policyd::{DecisionServer, register_policy};

#[path = "../../kernel/benches/pair/mod.rs"]
mod pair;

const BENCH: &str = "policy_cost";
/// Pacing rate of the latency measurement, the link rate of the scenarios, in bytes per second.
const PACING_RATE: u32 = 150_000_000 / 8;
/// Duration of the latency measurement, s.
const SECONDS: usize = 10;

fn main() -> io::Result<()> {
    // Cargo adds `--bench`.
    let Some(card) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) else {
        println!("{BENCH}: skipped: no card: python -m validation kernel-costs gives it one");
        return Ok(());
    };
    let loaded = skyhop_ccfile::load_policy(Path::new(&card)).map_err(io::Error::other)?;
    if !pair::open(BENCH)? {
        return Ok(());
    }
    let begin = || register_policy(&card, &loaded.policy, &loaded.parameters(&[]), None);
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

/// Print quantiles of the decisions' latency.
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
