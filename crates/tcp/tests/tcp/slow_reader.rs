//! What a receiver tells of its buffer while the application takes its time, and what the sender makes of it.

use skyhop_tcp::{EndpointConfig, Receiver, ReceiverConfig, Segment, SegmentKind};
use skyhop_units::{Bytes, Duration, Instant};

use crate::pair::{Client, Pair, Server};
use crate::path::{ms, on_the_dot};
use crate::receiving::{of_window, segment};

fn slow(window: u64) -> ReceiverConfig {
    ReceiverConfig { reads_at_once: false, ..of_window(window) }
}

/// A receiver to which segments of given lengths come 1 ms apart.
struct Fed {
    receiver: Receiver,
    now: Instant,
    seq: u64,
    offset: u64,
}

impl Fed {
    fn new(config: ReceiverConfig) -> Self {
        Self { receiver: Receiver::new(config), now: Instant::START, seq: 0, offset: 0 }
    }

    /// The window of the ACK that a segment causes.
    fn feed(&mut self, len: u16) -> Option<u64> {
        self.now += ms(1);
        let segment = self.segment(len);
        self.seq += 1;
        self.offset += u64::from(len);
        self.receiver.on_segment(self.now, &segment).map(|ack| ack.window)
    }

    fn segment(&self, len: u16) -> Segment {
        Segment { offset: self.offset, len, ..segment(self.seq) }
    }

    fn read(&mut self, bytes: u64) -> Option<u64> {
        self.receiver.read(self.now, Bytes::new(bytes)).map(|ack| ack.window)
    }

    /// The window of the ACK that was delayed.
    fn wait(&mut self) -> u64 {
        self.now = self.receiver.next_timer().expect("an ACK that waits");
        self.receiver.on_timer(self.now).expect("an ACK").window
    }
}

/// `tcp_incr_quickack`: half a window's segments are acknowledged one by one, here three. `__tcp_select_window`: less
/// than a segment, or than a sixteenth of the buffer, is no window. `tcp_select_window`: but what was offered stays so.
#[test]
fn a_window_shrinks_to_nothing_and_never_backwards() {
    let mut fed = Fed::new(slow(10_000));
    let told: Vec<Option<u64>> = (0..6).map(|_| fed.feed(1448)).collect();
    assert_eq!(told, [Some(8552), Some(7104), Some(5656), None, None, None]);
    // 1312 bytes are free, less than a segment: without the promise it would be 0.
    assert_eq!(fed.wait(), 1312);
    assert_eq!(fed.feed(1312), None);
    assert_eq!(fed.wait(), 0);
    assert_eq!((fed.feed(1), fed.receiver.stats().outside_window), (Some(0), 1));
}

/// `tcp_cleanup_rbuf`: no ACK for a silly window.
#[test]
fn a_shut_window_opens_by_a_segment() {
    let mut fed = Fed::new(slow(10_000));
    for len in [1448; 6].into_iter().chain([1312]) {
        fed.feed(len);
    }
    fed.wait();
    assert_eq!(fed.read(1000), None);
    assert_eq!(fed.read(447), None);
    assert_eq!(fed.read(1), Some(1448));
    assert_eq!(fed.receiver.unread(), Bytes::new(10_000 - 1448));
}

#[test]
fn an_open_window_is_told_again_when_it_has_doubled() {
    let mut fed = Fed::new(slow(100_000));
    for _ in 0..50 {
        fed.feed(1448);
    }
    while fed.receiver.next_timer().is_some() {
        fed.wait();
    }
    // 27,600 bytes are left of the window.
    assert_eq!(fed.read(27_598), None);
    // Windows of 64 KiB and more are told in steps of 2.
    assert_eq!(fed.read(2), Some(55_200));
}

/// Two segments that have not been acknowledged are, once the application makes room.
#[test]
fn reading_acknowledges_what_was_not_while_the_window_shrank() {
    let mut fed = Fed::new(slow(20_000));
    let told: Vec<Option<u64>> = (0..12).map(|_| fed.feed(1448)).collect();
    // Six quick ACKs; two segments would be acknowledged at once, were there as large a window as before.
    assert_eq!(told[5], Some(20_000 - 6 * 1448));
    assert_eq!(told[6..], [None; 6]);
    assert_eq!(fed.read(1), Some(20_000 - 12 * 1448 + 1));
}

fn pair(window: u64) -> Pair {
    let server = EndpointConfig { receiver: slow(window), ..on_the_dot() };
    let mut pair = Pair::new(on_the_dot(), server, ms(20));
    pair.run_for(ms(60));
    pair.sent.clear();
    pair
}

/// RFC 9293 3.8.6.1 as Linux does it.
#[test]
fn a_shut_window_is_probed_ever_more_seldom_until_it_opens() {
    let mut pair = pair(10_000);
    pair.client.write(pair.now, Bytes::new(20_000));
    pair.run_for(ms(120));
    assert_eq!(pair.server.unread(), Bytes::new(6 * 1448));
    // What fits leaves after a timeout, though it is less than a segment.
    let rto = pair.client.sender().info().rto;
    pair.run_for(rto + ms(100));
    assert_eq!(pair.server.unread(), Bytes::new(10_000));
    let sent = pair.told(Client);
    assert_eq!(sent.last().map(|(_, what)| what.as_str()), Some("1312"));
    // Then probes without data, in twice the time each.
    let rto = pair.client.sender().info().rto;
    pair.sent.clear();
    pair.run_for(rto * 40);
    let probes: Vec<(Duration, String)> = pair.told(Client);
    assert!(probes.iter().all(|(_, what)| what == "probe"), "{probes:?}");
    let waits: Vec<Duration> = probes.windows(2).map(|two| two[1].0 - two[0].0).collect();
    // Each answer starts the wait anew.
    assert_eq!(waits[..3], [2, 4, 8].map(|times| rto * times + ms(40)));
    let answers = pair.told(Server);
    assert!(answers.iter().all(|(_, what)| what == "ack 10000"), "{answers:?}");
    // The application reads: the window is told at once, and the rest leaves on its arrival.
    pair.sent.clear();
    let opened = pair.now;
    pair.server.read(pair.now, Bytes::new(10_000));
    pair.run_for(ms(30));
    assert_eq!(pair.since(opened, Server)[0], (Duration::ZERO, "ack 10000".into()));
    assert_eq!(pair.since(opened, Client)[0], (ms(20), "1448".into()));
    pair.run_for(ms(100));
    pair.server.read(pair.now, Bytes::new(10_000));
    pair.run_for(ms(1000));
    assert_eq!(pair.server.received(), Bytes::new(20_000));
}

/// sysctl tcp_invalid_ratelimit.
#[test]
fn probes_are_answered_twice_a_second_at_most() {
    let mut fed = Fed::new(slow(10_000));
    let probe = Segment { kind: SegmentKind::Probe, ..fed.segment(0) };
    let mut answered = |at: u64| fed.receiver.on_segment(Instant::START + ms(at), &probe).is_some();
    assert_eq!(
        [0, 200, 499, 500, 999, 1000].map(&mut answered),
        [true, false, false, true, false, true]
    );
}

/// Over a long path the reader's rate is the flow's.
#[test]
fn a_slow_reader_sets_the_pace() {
    let mut pair = pair(100_000);
    pair.client.write_without_end();
    // 5 Mbit/s: 6250 bytes every 10 ms.
    for _ in 0..1000 {
        pair.run_for(ms(10));
        pair.server.read(pair.now, Bytes::new(6250));
        assert!(pair.server.unread() <= Bytes::new(100_002));
    }
    let received = pair.server.received().as_u64();
    assert!((6_000_000..=6_350_000).contains(&received), "{received}");
    let info = pair.client.sender().info();
    assert_eq!((info.retransmits, info.timeouts), (0, 0));
    assert_eq!(pair.server.receiver().stats().outside_window, 0);
}
