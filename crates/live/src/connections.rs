//! The connections of a run's programs, as the kernel sees them: who opened them does not matter.
//!
//! Each direction that carries payload is a flow of the run. Its sender's socket tells of window, RTT and
//! retransmissions, its receiver's of what has arrived.

use std::collections::BTreeMap;
use std::mem::take;
use std::net::IpAddr;

use skyhop_host::error::HostError;
use skyhop_host::namespace::NetNamespace;
use skyhop_host::tcp_info::TcpInfo;
use skyhop_host::tcp_sockets::{Socket, SocketWatch};
use skyhop_model::End;
use skyhop_record::{ConnectionEnd, FlowEnd, FlowState, Recorder};
use skyhop_units::{Bytes, Instant};

use crate::kernel_cc;

/// How many flows have rows; of those beyond only the number is known.
const MOST_FLOWS: usize = 1_000;

/// The connections of a run's programs.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Of the ends `from` and `to`.
    watches: [SocketWatch; 2],
    ledger: Ledger,
}

/// What looks at both ends have shown.
#[derive(Debug)]
struct Ledger {
    known: BTreeMap<Ends, Connection>,
    /// Connections that are gone, but of whose sockets the kernel has not said that they have ended: it says so when
    /// the last packet of theirs has left the machine.
    gone: BTreeMap<Ends, Connection>,
    /// Connections that are over, as their ports may be used again.
    over: Vec<(Ends, Connection)>,
    numbers: Numbers,
    /// When the last look was: what a look finds began since then.
    looked: Instant,
}

/// Ids of flows, as long as there are any.
#[derive(Debug)]
struct Numbers {
    next: u32,
    left: usize,
}

impl Numbers {
    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        self.next += 1;
        Some(self.next - 1)
    }
}

const ENDS: [End; 2] = [End::From, End::To];

/// In place of the congestion control of a sender on another machine, or of one of whose socket only the end was seen.
const UNSEEN: &str = "unseen";

/// The kernel counts SYN and FIN as bytes.
const NOT_PAYLOAD: u64 = 2;

/// Address and port at both ends.
type Ends = [(IpAddr, u16); 2];

/// Of a socket at an end.
fn ends_of(end: End, socket: &Socket) -> Ends {
    match end {
        End::From => [socket.local, socket.peer],
        End::To => [socket.peer, socket.local],
    }
}

/// One connection.
#[derive(Debug, Clone, Default)]
struct Connection {
    since: Instant,
    until: Instant,
    /// What is known of the sockets at both ends.
    sockets: [Option<Known>; 2],
    /// From the end `from`, and from the end `to`: flows, where there was payload.
    flows: [Option<u32>; 2],
}

/// What is known of a socket.
#[derive(Debug, Clone, Default)]
struct Known {
    info: TcpInfo,
    cc: String,
    ended: bool,
    /// How many looks have not shown it.
    missed: u32,
}

impl Connections {
    /// Looks into the namespaces of both ends; its flows have ids from `first_id` on.
    pub(crate) fn watch(namespaces: [&NetNamespace; 2], first_id: u32) -> Result<Self, HostError> {
        let [from, to] = namespaces;
        Ok(Self {
            watches: [SocketWatch::open(from)?, SocketWatch::open(to)?],
            ledger: Ledger::new(first_id),
        })
    }

    /// Looks at all sockets: the states of the flows that there are, and of those that have just ended.
    pub(crate) fn sample(&mut self, now: Instant) -> Result<Vec<FlowState>, HostError> {
        let [from, to] = &mut self.watches;
        Ok(self.ledger.note_looks([from.look()?, to.look()?], now))
    }

    /// Records the ends of all flows, once the link has run empty.
    pub(crate) fn conclude(
        mut self,
        at: Instant,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), HostError> {
        // The kernel tells of an end a moment after it: a connection that was there between two looks only may not
        // have been in the last one.
        let [from, to] = &mut self.watches;
        self.ledger.note_late([from.ended()?, to.ended()?], at);
        let (mut ends, unlisted) = self.ledger.ends(at);
        ends.sort_by_key(|connection| connection.end.id);
        ends.into_iter().for_each(|connection| recorder.connection_ended(connection));
        if unlisted > 0 {
            recorder.warn(format!(
                "the tables hold the first {MOST_FLOWS} flows of the program; there were {unlisted} more"
            ));
        }
        Ok(())
    }
}

impl Ledger {
    /// Its flows have ids from `first_id` on.
    fn new(first_id: u32) -> Self {
        Self {
            known: BTreeMap::new(),
            gone: BTreeMap::new(),
            over: Vec::new(),
            numbers: Numbers { next: first_id, left: MOST_FLOWS },
            looked: Instant::START,
        }
    }

    /// Notes what looks at both ends have found; the states of the flows there are, and of those that have just ended.
    fn note_looks(&mut self, looks: [Vec<Socket>; 2], now: Instant) -> Vec<FlowState> {
        for known in self.known.values_mut().flat_map(|one| one.sockets.iter_mut().flatten()) {
            known.missed += 1;
        }
        for (end, look) in ENDS.into_iter().zip(looks) {
            for socket in look {
                self.note(end, socket, now);
            }
        }
        let mut states = Vec::new();
        for connection in self.known.values_mut() {
            for end in ENDS {
                if connection.flows[end as usize].is_none() && connection.payload(end).is_some() {
                    connection.flows[end as usize] = self.numbers.next();
                }
                states.extend(connection.state(end, now));
            }
        }
        self.put_aside();
        states.sort_by_key(|state| state.id);
        self.looked = now;
        states
    }

    /// Notes connections of which nothing was known at the end but that they have ended. What is said of others is of
    /// the time after the run.
    fn note_late(&mut self, mut ended: [Vec<Socket>; 2], at: Instant) {
        for (end, sockets) in ENDS.into_iter().zip(&mut ended) {
            sockets.retain(|socket| !self.has_seen(&ends_of(end, socket)));
        }
        self.note_looks(ended, at);
    }

    fn has_seen(&self, ends: &Ends) -> bool {
        self.known.contains_key(ends)
            || self.gone.contains_key(ends)
            || self.over.iter().any(|(over, _)| over == ends)
    }

    /// Makes room for connections that use the same ports again.
    fn put_aside(&mut self) {
        let (over, known): (BTreeMap<_, _>, _) =
            take(&mut self.known).into_iter().partition(|(_, one)| one.is_over());
        self.known = known;
        for (ends, connection) in over {
            let earlier = if connection.has_ended() {
                Some(connection)
            } else {
                self.gone.insert(ends, connection)
            };
            self.over.extend(earlier.map(|one| (ends, one)));
        }
    }

    /// The ends of all flows, and how many there are beyond those that have ids.
    fn ends(self, at: Instant) -> (Vec<ConnectionEnd>, usize) {
        let (mut ends, mut unlisted) = (Vec::new(), 0);
        for (addresses, connection) in self.over.into_iter().chain(self.gone).chain(self.known) {
            for end in ENDS.into_iter().filter(|end| connection.payload(*end).is_some()) {
                match connection.ended(end, &addresses, at) {
                    Some(ended) => ends.push(ended),
                    None => unlisted += 1,
                }
            }
        }
        (ends, unlisted)
    }

    fn note(&mut self, end: End, socket: Socket, now: Instant) {
        let ends = ends_of(end, &socket);
        if socket.ended && self.end_gone(end, &ends, &socket.info) {
            return;
        }
        let connection = self
            .known
            .entry(ends)
            .or_insert_with(|| Connection { since: self.looked, ..Connection::default() });
        connection.until = now;
        let known = connection.sockets[end as usize].get_or_insert_default();
        known.info = socket.info;
        known.cc = socket.cc.unwrap_or_else(|| take(&mut known.cc));
        known.ended |= socket.ended;
        known.missed = 0;
    }

    /// Notes the end of a socket of a connection that has long been gone, if it is of one.
    fn end_gone(&mut self, end: End, ends: &Ends, info: &TcpInfo) -> bool {
        let Some(connection) = self.gone.get_mut(ends) else { return false };
        let Some(known) = &mut connection.sockets[end as usize] else { return false };
        if known.ended {
            return false;
        }
        known.ended = true;
        known.info = *info;
        if connection.has_ended() {
            self.over.extend(self.gone.remove_entry(ends));
        }
        true
    }
}

impl Connection {
    /// Whether both of its sockets that were ever seen are gone: what is said of their ends may come after a look
    /// that did not find them.
    fn is_over(&self) -> bool {
        self.sockets.iter().flatten().all(|known| known.ended || known.missed > 1)
    }

    /// Whether the kernel has said so of each of its sockets.
    fn has_ended(&self) -> bool {
        self.sockets.iter().flatten().all(|known| known.ended)
    }

    /// What an end has sent and the other has received, where that is anything.
    fn payload(&self, sender: End) -> Option<Bytes> {
        let [sender, receiver] =
            [&self.sockets[sender as usize], &self.sockets[1 - sender as usize]];
        let received = receiver.as_ref().map(|known| known.info.bytes_received);
        // The far end of a connection to another machine is not to be seen.
        let received = received.or_else(|| Some(sender.as_ref()?.info.bytes_acked))?;
        (received > NOT_PAYLOAD).then(|| Bytes::new(received))
    }

    /// The state of the flow that an end sends.
    fn state(&self, sender: End, now: Instant) -> Option<FlowState> {
        let (id, received) = (self.flows[sender as usize]?, self.payload(sender)?);
        let socket = self.sockets[sender as usize].clone().unwrap_or_default();
        let info = socket.info;
        Some(FlowState {
            id,
            since: self.since,
            until: now,
            received,
            cwnd_packets: info.cwnd_packets,
            ssthresh_packets: info.ssthresh_packets,
            srtt_us: info.srtt_us.map(u64::from),
            inflight_packets: info.inflight_packets,
            retransmits: info.retransmits.into(),
            pacing_rate_bps: info.pacing_rate_bps.filter(|_| kernel_cc::paces(&socket.cc)),
            state: info.state,
        })
    }

    /// The end of the flow that an end sends.
    fn ended(&self, sender: End, ends: &Ends, run_end: Instant) -> Option<ConnectionEnd> {
        let (id, received) = (self.flows[sender as usize]?, self.payload(sender)?);
        let socket = self.sockets[sender as usize].as_ref();
        let info = socket.map(|socket| socket.info).unwrap_or_default();
        let [from, to] = [("from", ends[0]), ("to", ends[1])];
        let [(a, a_ends), (b, b_ends)] = if sender == End::From { [from, to] } else { [to, from] };
        Some(ConnectionEnd {
            end: FlowEnd {
                id,
                at: self.until.min(run_end),
                received,
                retransmits: info.retransmits.into(),
                sent_packets: info.data_segments_sent.into(),
                completed: None,
            },
            start: self.since.min(run_end),
            cc: socket
                .map(|socket| socket.cc.clone())
                .filter(|cc| !cc.is_empty())
                .unwrap_or_else(|| UNSEEN.to_owned()),
            name: format!("{a}:{} -> {b}:{}", a_ends.1, b_ends.1),
            sender_seen: socket.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: [u16; 2] = [40_000, 5_201];

    fn at_ms(ms: u64) -> Instant {
        Instant::START + skyhop_units::Duration::from_millis(ms)
    }

    /// A socket at an end, of the connection over which `from` sends.
    fn socket(end: End, bytes: u64, cc: Option<&str>) -> Socket {
        let address = |end: End| ([10, 0, 0, 1 + end as u8].into(), PORTS[end as usize]);
        let (own, other) =
            if end == End::From { (End::From, End::To) } else { (End::To, End::From) };
        let (sent, received) = if end == End::From { (bytes, 0) } else { (0, bytes) };
        Socket {
            local: address(own),
            peer: address(other),
            cc: cc.map(str::to_owned),
            info: TcpInfo { bytes_acked: sent, bytes_received: received, ..TcpInfo::default() },
            ended: cc.is_none(),
        }
    }

    fn there(bytes: u64) -> [Vec<Socket>; 2] {
        [vec![socket(End::From, bytes, Some("reno"))], vec![socket(End::To, bytes, Some("cubic"))]]
    }

    #[test]
    fn what_the_last_look_missed_is_a_flow_and_what_it_saw_stays_as_it_was() {
        let both =
            |bytes| [vec![socket(End::From, bytes, None)], vec![socket(End::To, bytes, None)]];
        let mut unseen = Ledger::new(0);
        unseen.note_late(both(9_000), at_ms(100));
        let (ends, _) = unseen.ends(at_ms(100));
        assert_eq!(ends.len(), 1);
        assert_eq!((ends[0].end.received, ends[0].cc.as_str()), (Bytes::new(9_000), UNSEEN));
        let mut seen = Ledger::new(0);
        seen.note_looks(there(5_000), at_ms(100));
        seen.note_late(both(9_000), at_ms(100));
        let (ends, _) = seen.ends(at_ms(100));
        assert_eq!(ends.len(), 1);
        assert_eq!((ends[0].end.received, ends[0].cc.as_str()), (Bytes::new(5_000), "reno"));
    }

    #[test]
    fn an_end_that_is_told_late_is_of_the_connection_that_is_gone() {
        let mut ledger = Ledger::new(0);
        ledger.note_looks(there(5_000), at_ms(100));
        // The receiver's end is told at once; the sender's last packets are still on their way out.
        ledger.note_looks([vec![], vec![socket(End::To, 9_000, None)]], at_ms(200));
        for ms in [300, 400, 500] {
            ledger.note_looks([vec![], vec![]], at_ms(ms));
        }
        ledger.note_looks([vec![socket(End::From, 9_000, None)], vec![]], at_ms(600));
        let (ends, unlisted) = ledger.ends(at_ms(700));
        assert_eq!((ends.len(), unlisted), (1, 0), "{ends:?}");
        assert_eq!((ends[0].cc.as_str(), ends[0].end.received), ("reno", Bytes::new(9_000)));
    }

    #[test]
    fn ports_that_are_used_again_make_another_flow() {
        let mut ledger = Ledger::new(0);
        for first_ms in [100, 1_000] {
            ledger.note_looks(there(5_000), at_ms(first_ms));
            let ended = [socket(End::From, 6_000, None), socket(End::To, 6_000, None)];
            ledger.note_looks(ended.map(|one| vec![one]), at_ms(first_ms + 100));
        }
        // One that no look has shown.
        let ended = [socket(End::From, 7_000, None), socket(End::To, 7_000, None)];
        ledger.note_looks(ended.map(|one| vec![one]), at_ms(1_500));
        let (ends, _) = ledger.ends(at_ms(2_000));
        let found: Vec<_> = ends.iter().map(|one| (one.end.id, one.cc.as_str())).collect();
        assert_eq!(found, [(0, "reno"), (1, "reno"), (2, UNSEEN)]);
    }
}
