//! Small exchanges over one connection: requests, responses, half-closes.

use skyhop_tcp::{ConnectionState, EndpointConfig, Failure};
use skyhop_units::{Bytes, Instant};

use crate::pair::{Client, Pair, Server};
use crate::path::ms;

const CONFIG: fn() -> EndpointConfig = EndpointConfig::default;

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
    let requests = pair.told(Client);
    assert_eq!(requests[0], (start - Instant::START, "300".into()));
    let response = pair.told(Server);
    // A quick ACK at first, before the application can answer.
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
    let told: Vec<String> = pair.told(Client).into_iter().map(|(_, told)| told).collect();
    assert_eq!(told[..2], ["300", "0 fin"]);
    let last = pair.told(Server).into_iter().rfind(|(_, told)| told.contains("fin"));
    assert_eq!(last.map(|(_, told)| told), Some("656 fin, ack 300".into()));
}

#[test]
fn an_abort_ends_both_sides() {
    let mut pair = Pair::open(CONFIG(), ms(20));
    pair.server.write_without_end();
    pair.run_for(ms(100));
    pair.client.abort(pair.now);
    pair.run_for(ms(100));
    assert_eq!(pair.client.state(), ConnectionState::Failed(Failure::Aborted));
    assert_eq!(pair.server.state(), ConnectionState::Failed(Failure::Reset));
    assert_eq!((pair.client.next_timer(), pair.server.next_timer()), (None, None));
}
