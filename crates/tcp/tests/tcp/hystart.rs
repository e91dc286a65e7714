//! CUBIC's end of slow start before any loss (HyStart).

use skyhop_cc::Instance;
use skyhop_tcp::TcpInfo;
use skyhop_units::Instant;

use crate::path::{Path, module, ms};

/// Bandwidth-delay product of 50 Mbit/s on the wire and 40 ms, in packets.
const BDP: u32 = 165;

/// Run the start of a flow with these parameters over a queue of so many packets.
fn start(params: &[(&str, &str)], queue: u32) -> Path<Instance> {
    let mut path =
        Path::new(module("cubic", params), ms(20)).with_bottleneck("50 Mbit/s", queue.into());
    path.sender.write_without_end();
    path.run_for(ms(400));
    path
}

/// Trace from the end of slow start on.
fn from_the_end(path: &Path<Instance>) -> &[(Instant, TcpInfo)] {
    let end = path.trace.iter().position(|(_, info)| info.ssthresh.is_some());
    &path.trace[end.expect("an end of slow start")..]
}

/// Arrival time of the first ACK of the train that ends at `end`, without a gap of more than 2 ms.
fn train_before(path: &Path<Instance>, end: Instant) -> Instant {
    let arrivals: Vec<Instant> =
        path.acks.iter().map(|(left, _)| *left + ms(20)).filter(|at| *at <= end).collect();
    let gap = arrivals.windows(2).rfind(|pair| pair[1] - pair[0] > ms(2));
    gap.expect("a gap between two flights")[1]
}

/// A train of ACKs without a gap for half of the minimum RTT ends slow start (Ha and Rhee 3.2).
#[test]
fn a_train_of_acks_as_long_as_the_one_way_delay_ends_slow_start() {
    let path = start(&[("hystart_detect", "1")], BDP);
    let (at, info) = from_the_end(&path)[0];
    assert_eq!((info.retransmits, info.recoveries), (0, 0));
    assert_eq!(info.ssthresh, Some(info.cwnd));
    let train = at - train_before(&path, at);
    // Linux adds the time of four bursts, 1 ms at most.
    assert!((ms(20)..=ms(22)).contains(&train), "{train}");
    assert!((BDP / 2..2 * BDP).contains(&info.cwnd), "{}", info.cwnd);
}

/// A round that begins with RTTs an eighth above the minimum, here 5 ms, ends slow start (Ha and Rhee 3.3).
#[test]
fn a_queue_ends_slow_start() {
    let path = start(&[("hystart_detect", "2")], 10 * BDP);
    let (at, info) = from_the_end(&path)[0];
    assert_eq!((info.retransmits, info.recoveries), (0, 0));
    let waiting = path.trace.iter().rfind(|(time, _)| *time + ms(40) <= at).expect("earlier").1;
    assert!(waiting.inflight > BDP + 21, "{} in flight a round trip before", waiting.inflight);
    // The window is twice the one that first fills the path, and grows until the round that detects it.
    assert!((2 * BDP..5 * BDP).contains(&info.cwnd), "{}", info.cwnd);
}

#[test]
fn what_follows_is_congestion_avoidance() {
    let path = start(&[], BDP);
    let after = from_the_end(&path);
    let (at, start) = after[0];
    let later = after.iter().find(|(time, _)| *time >= at + start.srtt.expect("a sample"));
    let (_, later) = later.expect("a round trip after it");
    assert!(later.cwnd > start.cwnd, "still growing");
    // Linux grows by 5 % per round trip until a loss has shown the capacity of the path.
    assert!(f64::from(later.cwnd) <= 1.06 * f64::from(start.cwnd), "{start:?} {later:?}");
}

#[test]
fn without_a_bottleneck_there_is_no_end() {
    let mut path = Path::new(module("cubic", &[]), ms(20));
    path.sender.write_without_end();
    path.run_for(ms(340));
    let info = path.sender.info();
    // Seven round trips after the handshake, except while the send buffer has yet to grow.
    assert_eq!(info.ssthresh, None);
    assert!((1200..=10 << 7).contains(&info.cwnd), "{}", info.cwnd);
}

#[test]
fn without_hystart_only_a_loss_ends_it() {
    let path = start(&[("hystart", "0")], BDP);
    let (_, info) = from_the_end(&path)[0];
    assert_eq!(info.recoveries, 1);
    assert!(path.sender.info().retransmits > 50, "{}", path.sender.info().retransmits);
}
