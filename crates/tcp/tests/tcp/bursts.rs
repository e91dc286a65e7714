//! Sizes of bursts when ACKs clock the transmissions (Linux's TSO packets).

use std::collections::BTreeMap;

use skyhop_model::BufferSizes;
use skyhop_tcp::{Sender, SenderConfig};
use skyhop_units::{Bytes, Duration, Instant};

use crate::path::{Path, ms};
use crate::reno::{FixedWindow, Reno};

/// Histogram of the bursts of a flow that fills 50 Mbit/s and 40 ms: number of bursts by size.
fn bursts(tso: bool) -> BTreeMap<u32, u32> {
    let mut path = Path::new(Reno::default(), ms(20)).with_bottleneck("50 Mbit/s", 165);
    path.sender = Sender::new(SenderConfig { tso, ..SenderConfig::default() }, Reno::default());
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(4));
    path.forget();
    path.run_for(Duration::from_secs(2));
    assert!(path.retransmissions().is_empty(), "congestion avoidance and nothing else");
    let mut together: BTreeMap<Instant, u32> = BTreeMap::new();
    path.sent.iter().for_each(|(at, _)| *together.entry(*at).or_default() += 1);
    let mut sizes = BTreeMap::new();
    together.values().for_each(|size| *sizes.entry(*size).or_default() += 1);
    sizes
}

/// A millisecond at 1.2 times 50 Mbit/s is four segments: two ACKs' worth.
#[test]
fn small_bursts_wait_for_the_next_ack() {
    let sizes = bursts(true);
    let all: u32 = sizes.values().sum();
    assert!(sizes[&4] * 10 >= all * 9, "{sizes:?}");
    assert!(sizes.keys().all(|size| *size <= 8), "{sizes:?}");
}

#[test]
fn without_tso_every_ack_releases_what_it_acknowledges() {
    let sizes = bursts(false);
    let all: u32 = sizes.values().sum();
    assert!(sizes[&2] * 10 >= all * 9, "{sizes:?}");
}

/// The send buffer (sysctl tcp_wmem) limits the data written and not acknowledged; a blocked application writes
/// again once a third is free.
#[test]
fn the_send_buffer_limits_what_is_in_flight() {
    let buffer = Bytes::new(1 << 20);
    let wmem = BufferSizes { initial: Bytes::new(16_384), max: buffer };
    let config = SenderConfig { wmem, ..SenderConfig::default() };
    let mut path =
        Path::with_config(config, FixedWindow { cwnd: 5000, rates: Vec::new() }, ms(100));
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(5));
    let most = path.trace.iter().map(|(_, info)| info.inflight).max().expect("ACKs");
    // The buffer holds payload, and 1280 bytes for each burst.
    assert!((680..=724).contains(&most), "{most}");
    let (late, settled) = (path.now, path.sent.len());
    path.run_for(Duration::from_secs(2));
    let gaps = path.sent[settled..].windows(2).filter(|two| two[1].0 - two[0].0 > ms(50)).count();
    assert!(gaps >= 5, "it stops and goes: {gaps} since {late:?}");
}
