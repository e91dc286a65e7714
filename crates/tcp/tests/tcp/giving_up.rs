//! Keepalive, and the limits after which a connection gives up.

use skyhop_model::{KeepAlive, Profile};
use skyhop_tcp::{ConnectionState, EndpointConfig, Failure, ReceiverConfig, SenderConfig};
use skyhop_units::{Bytes, Duration, Instant};

use crate::pair::{Client, Pair, Server};
use crate::path::{Fate, exact_timers, ms};
use crate::receiving::of_window;

fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn kept_alive() -> EndpointConfig {
    let keepalive = KeepAlive { time: s(10), interval: s(2), probes: 3 };
    EndpointConfig { keepalive: Some(keepalive), ..exact_timers() }
}

fn giving_up() -> EndpointConfig {
    let sender = SenderConfig { gives_up: true, ..exact_timers().sender };
    EndpointConfig { sender, ..exact_timers() }
}

fn cut(pair: &mut Pair) {
    pair.judge = Box::new(|_, _, _| Fate::Lost);
}

#[test]
fn an_idle_connection_is_probed() {
    let mut pair = Pair::new(kept_alive(), exact_timers(), ms(20));
    pair.run_for(ms(100));
    pair.sent.clear();
    pair.run_for(s(25));
    // The first probe leaves 10 s after the SYN-ACK, which arrived at 40 ms; the next 10 s after the answer.
    let expected = |at: Duration, what: &str| (at, what.to_owned());
    let (first, answered) = (s(10) + ms(40), s(10) + ms(80));
    assert_eq!(
        pair.sent_by(Client),
        [expected(first, "probe"), expected(first + s(10) + ms(40), "probe")]
    );
    assert_eq!(pair.sent_by(Server)[0], expected(first + ms(20), "ack 0"));
    assert_eq!(pair.client.state(), ConnectionState::Established);
    // Data in either direction delays the next probe.
    pair.run_for(answered + s(16) - (pair.now - Instant::START));
    pair.server.write(pair.now, Bytes::new(10));
    pair.sent.clear();
    pair.run_for(s(9));
    assert_eq!(pair.sent_by(Client).iter().filter(|(_, what)| what == "probe").count(), 0);
}

#[test]
fn an_end_that_has_gone_is_noticed() {
    let mut pair = Pair::new(kept_alive(), exact_timers(), ms(20));
    pair.run_for(ms(100));
    cut(&mut pair);
    pair.sent.clear();
    pair.run_for(s(30));
    let sent = pair.sent_by(Client);
    let at = |n: u64| s(n) + ms(40);
    let expected = [(at(10), "probe"), (at(12), "probe"), (at(14), "probe"), (at(16), "reset")];
    assert_eq!(sent, expected.map(|(at, what)| (at, what.to_owned())));
    assert_eq!(pair.client.state(), ConnectionState::Failed(Failure::KeepAlive));
}

/// Waits of sysctl tcp_syn_retries: 1 + 2 + 4 + 8 + 16 + 32 + 64 s; with tcp_syn_linear_timeouts four times 1 s
/// before.
#[test]
fn nobody_there_is_noticed_after_two_minutes() {
    for (profile, after, syns) in [(Profile::Linux6_18, s(131), 11), (Profile::Linux5_4, s(127), 7)]
    {
        let mut config = giving_up();
        config.sender.host.profile = profile;
        let mut pair = Pair::new(config, config, ms(20));
        cut(&mut pair);
        pair.run_for(after - ms(1));
        assert_eq!(pair.client.state(), ConnectionState::Opening);
        pair.run_for(ms(1));
        assert_eq!(pair.client.state(), ConnectionState::Failed(Failure::Unanswered));
        assert_eq!(pair.sent_by(Client).len(), syns);
        assert_eq!(pair.client.next_timer(), None);
    }
}

/// Retries of sysctl tcp_retries2 take 924.6 s from the first retransmission. With a timeout of 240 ms, doubled
/// up to 120 s, the one after 962.4 s is the first beyond.
#[test]
fn data_is_given_up_after_fifteen_retransmissions() {
    let mut pair = Pair::open(giving_up(), ms(20));
    cut(&mut pair);
    pair.client.write(pair.now, Bytes::new(1448));
    let mut failed = None;
    while failed.is_none() {
        assert!(pair.step(Instant::START + s(2000)));
        let state = pair.client.state();
        failed = (state == ConnectionState::Failed(Failure::TimedOut)).then_some(pair.now);
    }
    // The sender sends the segment, its loss probe, and 15 retransmissions.
    let sent = pair.sent_by(Client);
    assert_eq!(sent.len(), 2 + 15);
    assert_eq!(failed.map(|at| at - Instant::START), Some(sent[2].0 + ms(962_400)));
}

#[test]
fn who_does_not_give_up_goes_on_for_ever() {
    let mut pair = Pair::open(exact_timers(), ms(20));
    cut(&mut pair);
    pair.client.write(pair.now, Bytes::new(1448));
    pair.run_for(s(10_000));
    assert_eq!(pair.client.state(), ConnectionState::Established);
    assert!(pair.sent_by(Client).len() > 80);
}

/// A closed window is no reason to give up as long as the other end answers.
#[test]
fn a_shut_window_is_given_up_only_where_nobody_answers() {
    let receiver = ReceiverConfig { reads_at_once: false, ..of_window(1448) };
    let server = EndpointConfig { receiver, ..exact_timers() };
    let mut pair = Pair::new(giving_up(), server, ms(20));
    pair.client.write_without_end();
    pair.run_for(s(5000));
    assert_eq!(pair.client.state(), ConnectionState::Established);
    cut(&mut pair);
    pair.run_for(s(15 * 120));
    assert_eq!(pair.client.state(), ConnectionState::Established);
    pair.run_for(s(2 * 120));
    assert_eq!(pair.client.state(), ConnectionState::Failed(Failure::TimedOut));
}
