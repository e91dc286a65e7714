//! Small exchanges over one connection: requests, responses, half-closes.

use skyhop_tcp::{ConnectionState, EndpointConfig, Failure, Packet, ReceiverConfig};
use skyhop_units::{Bytes, Duration, Instant};

use crate::pair::{Client, Pair, Server, describe};
use crate::path::{Fate, exact_timers, ms};
use crate::receiving::of_window;

const CONFIG: fn() -> EndpointConfig = exact_timers;

#[test]
fn a_request_leaves_at_once_and_the_response_carries_its_acknowledgement() {
    let mut pair = Pair::open(CONFIG(), ms(20));
    let start = pair.now;
    pair.client.write(pair.now, Bytes::new(300));
    pair.run_for(ms(20));
    assert_eq!(pair.server.received(), Bytes::new(300));
    pair.server.write(pair.now, Bytes::new(100_000));
    pair.run_for(ms(200));
    assert_eq!(pair.client.received(), Bytes::new(100_000));
    assert_eq!(pair.server.acknowledged(), Bytes::new(100_000));
    assert_eq!(pair.client.acknowledged(), Bytes::new(300));
    let requests = pair.sent_by(Client);
    assert_eq!(requests[0], (start - Instant::START, "300".into()));
    let response = pair.sent_by(Server);
    // The first ACK is a quick ACK, before the application can answer.
    assert_eq!(response[0], (start + ms(20) - Instant::START, "ack 300".into()));
    assert_eq!(response[1].1, "1448, ack 300");
}

#[test]
fn both_streams_end_with_a_fin_of_their_own() {
    let mut pair = Pair::open(CONFIG(), ms(20));
    pair.client.write(pair.now, Bytes::new(300));
    pair.run_for(ms(100));
    pair.client.finish();
    pair.run_for(ms(100));
    assert!(pair.server.peer_finished());
    assert_eq!(pair.server.state(), ConnectionState::Established);
    pair.server.write(pair.now, Bytes::new(5000));
    pair.server.finish();
    pair.run_for(ms(300));
    assert_eq!(pair.client.received(), Bytes::new(5000));
    assert_eq!(pair.client.state(), ConnectionState::Closed);
    assert_eq!(pair.server.state(), ConnectionState::Closed);
    let sent: Vec<String> = pair.sent_by(Client).into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(sent[..2], ["300", "0 fin"]);
    let last = pair.sent_by(Server).into_iter().rfind(|(_, packet)| packet.contains("fin"));
    assert_eq!(last.map(|(_, packet)| packet), Some("656 fin, ack 300".into()));
}

#[test]
fn an_abort_ends_both_sides() {
    let mut pair = Pair::open(CONFIG(), ms(20));
    pair.server.write_without_end();
    pair.run_for(ms(100));
    pair.client.abort();
    pair.run_for(ms(100));
    assert_eq!(pair.client.state(), ConnectionState::Failed(Failure::Aborted));
    assert_eq!(pair.server.state(), ConnectionState::Failed(Failure::Reset));
    assert_eq!((pair.client.next_timer(), pair.server.next_timer()), (None, None));
}

/// Interactive connections: an end that answers within the time of a delayed ACK acknowledges with the answer,
/// after the first time.
#[test]
fn answers_acknowledge_what_they_answer() {
    let mut pair = Pair::open(CONFIG(), ms(20));
    for _ in 0..4 {
        pair.client.write(pair.now, Bytes::new(300));
        pair.run_for(ms(20));
        pair.server.write(pair.now, Bytes::new(500));
        pair.run_for(ms(20));
    }
    let what = |sent: Vec<(Duration, String)>| -> Vec<String> {
        sent.into_iter().map(|(_, what)| what).collect()
    };
    let server = what(pair.sent_by(Server));
    assert_eq!(
        server,
        ["ack 300", "500, ack 300", "500, ack 600", "500, ack 900", "500, ack 1200"]
    );
    // The client's first answer to an answer is its second request.
    let client = what(pair.sent_by(Client));
    assert_eq!(client, ["300", "ack 500", "300, ack 500", "300, ack 1000", "300, ack 1500"]);
    // Nothing follows the last response: its acknowledgement comes alone, and ends the exchange.
    let end = pair.now;
    pair.run_for(ms(200));
    assert_eq!(pair.since(end, Client), [(ms(40), "ack 2000".into())]);
}

/// The window of the first response does not survive a pause (RFC 5681 4.1).
#[test]
fn a_pause_between_requests_restarts_the_window() {
    let mut pair = Pair::open(CONFIG(), ms(20));
    let mut bursts = Vec::new();
    for pause in [ms(10), ms(3000), ms(10)] {
        pair.client.write(pair.now, Bytes::new(300));
        pair.run_for(ms(20));
        let asked = pair.now;
        pair.server.write(pair.now, Bytes::new(1_000_000));
        pair.run_for(ms(10));
        let mut at_once = pair.since(asked, Server);
        at_once.retain(|(_, what)| what.starts_with("1448"));
        bursts.push(at_once.len());
        pair.run_for(ms(600));
        assert_eq!(pair.server.sender().info().inflight, 0);
        pair.run_for(pause);
    }
    assert_eq!((bursts[0], bursts[2]), (10, 10));
    assert!(bursts[1] > 50, "{bursts:?}");
}

/// The same holds for an application with an endless stream, between pauses.
#[test]
fn a_pause_of_an_endless_writer_restarts_the_window() {
    let mut pair = Pair::open(CONFIG(), ms(20));
    pair.client.write_without_end();
    pair.run_for(ms(200));
    pair.client.pause();
    pair.run_for(ms(3000));
    let (resumed, window) = (pair.now, pair.client.sender().info().cwnd);
    pair.client.write_without_end();
    pair.run_for(ms(10));
    assert_eq!(pair.since(resumed, Client).len(), 10);
    assert!(window > 100, "{window}");
}

/// An application that waits for room in the receiver's window is not idle.
#[test]
fn a_shut_window_does_not_restart_the_senders() {
    let receiver = ReceiverConfig { reads_at_once: false, ..of_window(100_000) };
    let server = EndpointConfig { receiver, ..CONFIG() };
    let mut pair = Pair::new(CONFIG(), server, ms(20));
    pair.client.write(pair.now, Bytes::new(300_000));
    pair.run_for(ms(5000));
    assert_eq!(pair.server.unread(), Bytes::new(100_000));
    let before = pair.client.sender().info().cwnd;
    pair.server.read(pair.now, Bytes::new(100_000));
    pair.run_for(ms(20));
    assert_eq!(pair.client.sender().info().cwnd, before);
    assert!(before > 20, "{before}");
}

/// An end that sends first does so even if the handshake's last segment is lost.
#[test]
fn who_is_called_may_speak_first() {
    let mut pair = Pair::new(CONFIG(), CONFIG(), ms(20));
    let mut lost = false;
    pair.judge = Box::new(move |_, from, packet| {
        let loses = !lost && from == Client && describe(packet).starts_with("handshake");
        lost |= loses;
        if loses { Fate::Lost } else { Fate::Arrives }
    });
    pair.server.write(pair.now, Bytes::new(5000));
    pair.run_for(ms(900));
    assert_eq!(pair.server.state(), ConnectionState::Opening);
    pair.run_for(ms(400));
    assert_eq!(pair.client.received(), Bytes::new(5000));
}

/// Acknowledgements of one direction take room from data of the other: no packet is larger than 1500 bytes.
#[test]
fn data_leaves_room_for_blocks() {
    let mut pair = Pair::open(CONFIG(), ms(20));
    let mut count = 0;
    pair.judge = Box::new(move |_, _, packet| {
        count += 1;
        let data = packet.ip_size() > Bytes::new(200);
        if data && count % 30 == 0 { Fate::Lost } else { Fate::Arrives }
    });
    pair.client.write(pair.now, Bytes::new(2_000_000));
    pair.server.write(pair.now, Bytes::new(2_000_000));
    pair.run_for(ms(60_000));
    assert_eq!(pair.client.received(), Bytes::new(2_000_000));
    assert_eq!(pair.server.received(), Bytes::new(2_000_000));
    let most = pair.sent.iter().map(|sent| sent.packet.ip_size()).max();
    assert_eq!(most, Some(Bytes::new(1500)));
    let with_blocks = pair.sent.iter().filter(|sent| match &sent.packet {
        Packet::DataWithAck(_, ack) => !ack.unpack().sack.is_empty(),
        _ => false,
    });
    assert!(with_blocks.count() > 100);
}
