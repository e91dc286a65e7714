//! Short segments that wait: Nagle's algorithm with Minshall's modification, TCP_NODELAY, TCP_CORK.

use skyhop_tcp::{EndpointConfig, SenderConfig};
use skyhop_units::{Bytes, Duration};

use crate::pair::{Client, Pair};
use crate::path::{exact_timers, ms};

fn with(sender: SenderConfig) -> EndpointConfig {
    EndpointConfig { sender, ..exact_timers() }
}

fn corked() -> EndpointConfig {
    with(SenderConfig { cork: true, ..exact_timers().sender })
}

/// Run writes, as (milliseconds after the start, bytes), over a round trip of 40 ms; return the time and
/// content of each packet of the client.
fn sent(config: EndpointConfig, writes: &[(u64, u64)]) -> Vec<(Duration, String)> {
    let mut pair = Pair::open(config, ms(20));
    let start = pair.now;
    for (at, bytes) in writes {
        pair.run_for(start + ms(*at) - pair.now);
        pair.client.write(pair.now, Bytes::new(*bytes));
    }
    pair.run_for(ms(1000));
    let total = writes.iter().map(|(_, bytes)| *bytes).sum();
    assert_eq!(pair.server.received(), Bytes::new(total));
    pair.since(start, Client)
}

fn packets(expected: &[(u64, &str)]) -> Vec<(Duration, String)> {
    expected.iter().map(|(at, what)| (ms(*at), (*what).into())).collect()
}

#[test]
fn a_short_segment_waits_while_another_is_outstanding() {
    let sent = sent(exact_timers(), &[(0, 100), (1, 200), (2, 300)]);
    assert_eq!(sent, packets(&[(0, "100"), (40, "500")]));
}

#[test]
fn without_nagle_nothing_waits() {
    let nodelay = with(SenderConfig { nodelay: true, ..exact_timers().sender });
    let sent = sent(nodelay, &[(0, 100), (1, 200), (2, 300)]);
    assert_eq!(sent, packets(&[(0, "100"), (1, "200"), (2, "300")]));
}

/// Outstanding full-size segments do not hold back a short one (Minshall), and a segment that is full never
/// waits.
#[test]
fn a_short_segment_waits_for_short_ones_only() {
    let writes = [(0, 1448), (1, 100), (2, 100), (3, 1400)];
    let sent = sent(exact_timers(), &writes);
    assert_eq!(sent, packets(&[(0, "1448"), (1, "100"), (3, "1448"), (41, "52")]));
}

#[test]
fn the_end_of_a_large_write_leaves_with_the_rest() {
    let sent = sent(exact_timers(), &[(0, 3000)]);
    assert_eq!(sent, packets(&[(0, "1448"), (0, "1448"), (0, "104")]));
}

/// The cork holds a segment for one timeout, here 40 ms and 200 ms of variation, and never less than 200 ms
/// (`tcp_check_probe_timer`).
#[test]
fn a_cork_holds_a_short_segment_for_a_timeout_at_most() {
    let sent = sent(corked(), &[(0, 100), (7, 200)]);
    assert_eq!(sent, packets(&[(240, "300")]));
}

/// The timer starts when nothing is outstanding any more.
#[test]
fn a_cork_lets_full_segments_through() {
    let sent = sent(corked(), &[(0, 2000)]);
    assert_eq!(sent, packets(&[(0, "1448"), (280, "552")]));
}

#[test]
fn what_a_cork_held_leaves_when_it_is_drawn() {
    let mut pair = Pair::open(corked(), ms(20));
    let start = pair.now;
    pair.client.write(pair.now, Bytes::new(100));
    pair.run_for(ms(50));
    pair.client.set_cork(false);
    pair.run_for(ms(100));
    assert_eq!(pair.since(start, Client), packets(&[(50, "100")]));
}

#[test]
fn neither_holds_the_end_of_a_stream() {
    for config in [exact_timers(), corked()] {
        let mut pair = Pair::open(config, ms(20));
        let start = pair.now;
        pair.client.write(pair.now, Bytes::new(1500));
        pair.run_for(ms(1));
        pair.client.write(pair.now, Bytes::new(10));
        pair.client.finish();
        pair.run_for(ms(500));
        let sent = pair.since(start, Client);
        let last = if config.sender.cork { "62 fin" } else { "10 fin" };
        assert_eq!(sent.last(), packets(&[(1, last)]).last());
    }
}
