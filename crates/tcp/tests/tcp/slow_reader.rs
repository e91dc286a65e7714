//! Windows that a receiver advertises while the application reads slowly, and the sender's reaction.

use skyhop_tcp::{EndpointConfig, Receiver, ReceiverConfig, Segment, SegmentKind};
use skyhop_units::{Bytes, Duration, Instant};

use crate::pair::{Client, Pair, Server};
use crate::path::{exact_timers, ms};
use crate::receiving::{of_window, segment};

fn slow(window: u64) -> ReceiverConfig {
    ReceiverConfig { reads_at_once: false, ..of_window(window) }
}

/// Receiver that gets segments of given lengths 1 ms apart.
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

    /// Window in the ACK that a segment causes.
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

    /// Window in the delayed ACK.
    fn wait(&mut self) -> u64 {
        self.now = self.receiver.next_timer().expect("an ACK that waits");
        self.receiver.on_timer(self.now).expect("an ACK").window
    }
}

/// Half a window's segments are acknowledged one by one, here three (`tcp_incr_quickack`). Less than a segment,
/// or than a sixteenth of the buffer, is advertised as no window (`__tcp_select_window`), but an offered window
/// never shrinks (`tcp_select_window`).
#[test]
fn a_window_shrinks_to_nothing_and_never_backwards() {
    let mut fed = Fed::new(slow(10_000));
    let windows: Vec<Option<u64>> = (0..6).map(|_| fed.feed(1448)).collect();
    assert_eq!(windows, [Some(8552), Some(7104), Some(5656), None, None, None]);
    // 1312 bytes are free, less than a segment: without the earlier offer the window would be 0.
    assert_eq!(fed.wait(), 1312);
    assert_eq!(fed.feed(1312), None);
    assert_eq!(fed.wait(), 0);
    assert_eq!((fed.feed(1), fed.receiver.stats().outside_window), (Some(0), 1));
}

/// No ACK is sent for a silly window (`tcp_cleanup_rbuf`).
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
    // The window has 27,600 bytes left.
    assert_eq!(fed.read(27_598), None);
    // Windows of 64 KiB and more are advertised in steps of 2.
    assert_eq!(fed.read(2), Some(55_200));
}

/// Two segments not acknowledged yet are acknowledged once the application makes room.
#[test]
fn reading_acknowledges_what_was_not_while_the_window_shrank() {
    let mut fed = Fed::new(slow(20_000));
    let windows: Vec<Option<u64>> = (0..12).map(|_| fed.feed(1448)).collect();
    // After six quick ACKs two segments would be acknowledged at once if the window were as large as before.
    assert_eq!(windows[5], Some(20_000 - 6 * 1448));
    assert_eq!(windows[6..], [None; 6]);
    assert_eq!(fed.read(1), Some(20_000 - 12 * 1448 + 1));
}

fn pair(window: u64) -> Pair {
    let server = EndpointConfig { receiver: slow(window), ..exact_timers() };
    let mut pair = Pair::new(exact_timers(), server, ms(20));
    pair.run_for(ms(60));
    pair.sent.clear();
    pair
}

/// Window probes of RFC 9293 3.8.6.1 as in Linux.
#[test]
fn a_shut_window_is_probed_ever_more_seldom_until_it_opens() {
    let mut pair = pair(10_000);
    pair.client.write(pair.now, Bytes::new(20_000));
    pair.run_for(ms(120));
    assert_eq!(pair.server.unread(), Bytes::new(6 * 1448));
    // The data that fits leaves after a timeout, although it is less than a segment.
    let rto = pair.client.sender().info().rto;
    pair.run_for(rto + ms(100));
    assert_eq!(pair.server.unread(), Bytes::new(10_000));
    let sent = pair.sent_by(Client);
    assert_eq!(sent.last().map(|(_, what)| what.as_str()), Some("1312"));
    // Probes without data follow, at intervals that double.
    let rto = pair.client.sender().info().rto;
    pair.sent.clear();
    pair.run_for(rto * 40);
    let probes: Vec<(Duration, String)> = pair.sent_by(Client);
    assert!(probes.iter().all(|(_, what)| what == "probe"), "{probes:?}");
    let waits: Vec<Duration> = probes.windows(2).map(|two| two[1].0 - two[0].0).collect();
    // Each answer restarts the wait.
    assert_eq!(waits[..3], [2, 4, 8].map(|times| rto * times + ms(40)));
    let answers = pair.sent_by(Server);
    assert!(answers.iter().all(|(_, what)| what == "ack 10000"), "{answers:?}");
    // The application reads: the window is advertised at once, and the rest leaves when it arrives.
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

/// Answers to probes are rate-limited (sysctl tcp_invalid_ratelimit).
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

/// The reader's rate limits the flow over a long path.
#[test]
fn a_slow_reader_sets_the_pace() {
    let mut pair = pair(100_000);
    pair.client.write_without_end();
    // The application reads 5 Mbit/s: 6250 bytes every 10 ms.
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
