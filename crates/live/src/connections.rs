//! TCP connections of a run's programs. sock_diag(7) finds them regardless of the process that opened them.
//!
//! Each direction that carries payload is a flow of the run. The sender's socket reports window, RTT
//! and retransmissions; the receiver's socket reports the bytes received.

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
use tracing::{debug, info};

use crate::kernel_cc;

/// Largest number of flows that are recorded; further flows are only counted.
const MOST_FLOWS: usize = 1_000;

/// Tracker of the connections of a run's programs.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Socket watches in the namespaces of `from` and `to`.
    watches: [SocketWatch; 2],
    table: ConnectionTable,
}

/// Connections found by snapshots of the sockets at both ends.
#[derive(Debug)]
struct ConnectionTable {
    known: BTreeMap<AddressPair, Connection>,
    /// Connections that are missing from snapshots although the kernel has not yet reported their sockets as
    /// destroyed. The kernel reports a socket when the socket's last packet has left the machine.
    gone: BTreeMap<AddressPair, Connection>,
    /// Connections that have ended; a list rather than a map, because later connections may reuse the ports.
    over: Vec<(AddressPair, Connection)>,
    flow_ids: FlowIds,
    /// Time of the last snapshot. Connections that are new in the next snapshot began after it.
    last_snapshot: Instant,
}

/// Allocator of at most [`MOST_FLOWS`] flow ids.
#[derive(Debug)]
struct FlowIds {
    next: u32,
    left: usize,
}

impl FlowIds {
    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        self.next += 1;
        Some(self.next - 1)
    }
}

const ENDS: [End; 2] = [End::From, End::To];

/// Placeholder for an unknown congestion control: the sender is on another machine, or the kernel reported only
/// that its socket was destroyed.
const UNKNOWN_CC: &str = "unseen";

/// Bytes that the kernel counts for SYN and FIN.
const NOT_PAYLOAD: u64 = 2;

/// Address and port at `from` and at `to`.
type AddressPair = [(IpAddr, u16); 2];

/// Addresses of the connection of a socket at an end.
fn addresses_of(end: End, socket: &Socket) -> AddressPair {
    match end {
        End::From => [socket.local, socket.peer],
        End::To => [socket.peer, socket.local],
    }
}

/// Connection between the two ends, or between one end and another machine.
#[derive(Debug, Clone, Default)]
struct Connection {
    since: Instant,
    until: Instant,
    /// Last known state of the sockets at both ends.
    sockets: [Option<SocketRecord>; 2],
    /// Ids of the flows sent by `from` and by `to`, for directions with payload.
    flows: [Option<u32>; 2],
}

/// Last known state of a socket.
#[derive(Debug, Clone, Default)]
struct SocketRecord {
    info: TcpInfo,
    cc: String,
    ended: bool,
    /// Number of consecutive snapshots without the socket.
    missed: u32,
}

impl Connections {
    /// Open socket watches in the namespaces of both ends; new flows get ids from `first_id`.
    pub(crate) fn watch(namespaces: [&NetNamespace; 2], first_id: u32) -> Result<Self, HostError> {
        let [from, to] = namespaces;
        Ok(Self {
            watches: [SocketWatch::open(from)?, SocketWatch::open(to)?],
            table: ConnectionTable::new(first_id),
        })
    }

    /// Take a snapshot of all sockets; return the states of open flows and of flows that have just ended.
    pub(crate) fn sample(&mut self, now: Instant) -> Result<Vec<FlowState>, HostError> {
        let [from, to] = &mut self.watches;
        Ok(self.table.update([from.snapshot()?, to.snapshot()?], now))
    }

    /// Record the final state of all flows, once the link has been drained.
    pub(crate) fn conclude(
        mut self,
        at: Instant,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), HostError> {
        // The kernel reports the destruction of a socket with a delay: a connection that lived only between two
        // snapshots may be missing from the last one.
        let [from, to] = &mut self.watches;
        self.table.add_ended([from.take_destroyed()?, to.take_destroyed()?], at);
        let (mut ends, unlisted) = self.table.ends(at);
        ends.sort_by_key(|connection| connection.end.id);
        ends.into_iter().for_each(|connection| recorder.connection_ended(connection));
        if unlisted > 0 {
            recorder.warn(format!(
                "the tables contain the first {MOST_FLOWS} flows of the program; {unlisted} more were not recorded"
            ));
        }
        Ok(())
    }
}

impl ConnectionTable {
    /// Create an empty table whose flows get ids from `first_id`.
    fn new(first_id: u32) -> Self {
        Self {
            known: BTreeMap::new(),
            gone: BTreeMap::new(),
            over: Vec::new(),
            flow_ids: FlowIds { next: first_id, left: MOST_FLOWS },
            last_snapshot: Instant::START,
        }
    }

    /// Update the table from snapshots of both ends; return the states of open flows and of those that have just ended.
    fn update(&mut self, snapshots: [Vec<Socket>; 2], now: Instant) -> Vec<FlowState> {
        for known in self.known.values_mut().flat_map(|one| one.sockets.iter_mut().flatten()) {
            known.missed += 1;
        }
        for (end, snapshot) in ENDS.into_iter().zip(snapshots) {
            for socket in snapshot {
                self.note(end, socket, now);
            }
        }
        let mut states = Vec::new();
        for connection in self.known.values_mut() {
            for end in ENDS {
                if connection.flows[end as usize].is_none() && connection.payload(end).is_some() {
                    connection.flows[end as usize] = self.flow_ids.next();
                }
                states.extend(connection.state(end, now));
            }
        }
        self.retire_ended();
        states.sort_by_key(|state| state.id);
        self.last_snapshot = now;
        states
    }

    /// Add connections that appear only in reports of destroyed sockets. Reports about known connections are ignored,
    /// because their counters include data sent after the run.
    fn add_ended(&mut self, mut ended: [Vec<Socket>; 2], at: Instant) {
        for (end, sockets) in ENDS.into_iter().zip(&mut ended) {
            sockets.retain(|socket| !self.contains(&addresses_of(end, socket)));
        }
        self.update(ended, at);
    }

    fn contains(&self, ends: &AddressPair) -> bool {
        self.known.contains_key(ends)
            || self.gone.contains_key(ends)
            || self.over.iter().any(|(over, _)| over == ends)
    }

    /// Move ended connections out of `known`, so that later connections can use the same ports.
    fn retire_ended(&mut self) {
        let (over, known): (BTreeMap<_, _>, _) =
            take(&mut self.known).into_iter().partition(|(_, one)| one.is_gone());
        self.known = known;
        for (ends, connection) in over {
            debug!(from = ?ends[0], to = ?ends[1], "connection is gone");
            let earlier = if connection.is_destroyed() {
                Some(connection)
            } else {
                self.gone.insert(ends, connection)
            };
            self.over.extend(earlier.map(|one| (ends, one)));
        }
    }

    /// Final states of all flows, and the number of flows without an id (those beyond [`MOST_FLOWS`]).
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
        let ends = addresses_of(end, &socket);
        if socket.ended && self.note_destroyed(end, &ends, &socket.info) {
            return;
        }
        let connection = self.known.entry(ends).or_insert_with(|| {
            info!(from = ?ends[0], to = ?ends[1], cc = socket.cc, "connection found");
            Connection { since: self.last_snapshot, ..Connection::default() }
        });
        connection.until = now;
        let known = connection.sockets[end as usize].get_or_insert_default();
        known.info = socket.info;
        known.cc = socket.cc.unwrap_or_else(|| take(&mut known.cc));
        known.ended |= socket.ended;
        known.missed = 0;
    }

    /// Handle the report that a socket was destroyed, if its connection is in `gone`; return whether it is.
    fn note_destroyed(&mut self, end: End, ends: &AddressPair, info: &TcpInfo) -> bool {
        let Some(connection) = self.gone.get_mut(ends) else { return false };
        let Some(known) = &mut connection.sockets[end as usize] else { return false };
        if known.ended {
            return false;
        }
        known.ended = true;
        known.info = *info;
        if connection.is_destroyed() {
            self.over.extend(self.gone.remove_entry(ends));
        }
        true
    }
}

impl Connection {
    /// Whether all known sockets of the connection are gone: reported as destroyed, or missing from two consecutive
    /// snapshots. One missing snapshot is not enough, because the report may come after a snapshot without the
    /// socket.
    fn is_gone(&self) -> bool {
        self.sockets.iter().flatten().all(|known| known.ended || known.missed > 1)
    }

    /// Whether the kernel has reported the destruction of all known sockets of the connection.
    fn is_destroyed(&self) -> bool {
        self.sockets.iter().flatten().all(|known| known.ended)
    }

    /// Payload sent by `sender` and received by the other end; `None` if there is none.
    fn payload(&self, sender: End) -> Option<Bytes> {
        let [sender, receiver] =
            [&self.sockets[sender as usize], &self.sockets[1 - sender as usize]];
        let received = receiver.as_ref().map(|known| known.info.bytes_received);
        // The far socket of a connection to another machine is not visible here.
        let received = received.or_else(|| Some(sender.as_ref()?.info.bytes_acked))?;
        (received > NOT_PAYLOAD).then(|| Bytes::new(received))
    }

    /// State of the flow sent by `sender`; `None` if it has no id or no payload.
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
            ack_rtts: None,
            inflight_packets: info.inflight_packets,
            retransmits: info.retransmits.into(),
            pacing_rate_bps: info.pacing_rate_bps.filter(|_| kernel_cc::paces(&socket.cc)),
            state: info.state,
        })
    }

    /// Final state of the flow sent by `sender`; `None` if it has no id or no payload.
    fn ended(&self, sender: End, ends: &AddressPair, run_end: Instant) -> Option<ConnectionEnd> {
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
                base_rtt: None,
            },
            start: self.since.min(run_end),
            cc: socket
                .map(|socket| socket.cc.clone())
                .filter(|cc| !cc.is_empty())
                .unwrap_or_else(|| UNKNOWN_CC.to_owned()),
            name: format!("{a}:{} -> {b}:{}", a_ends.1, b_ends.1),
            sender_observed: socket.is_some(),
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

    /// Socket at an end of a connection on which `from` sends `bytes`.
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
    fn flows_missing_from_the_last_snapshot_are_added_and_known_ones_do_not_change() {
        let both =
            |bytes| [vec![socket(End::From, bytes, None)], vec![socket(End::To, bytes, None)]];
        let mut unseen = ConnectionTable::new(0);
        unseen.add_ended(both(9_000), at_ms(100));
        let (ends, _) = unseen.ends(at_ms(100));
        assert_eq!(ends.len(), 1);
        assert_eq!((ends[0].end.received, ends[0].cc.as_str()), (Bytes::new(9_000), UNKNOWN_CC));
        let mut seen = ConnectionTable::new(0);
        seen.update(there(5_000), at_ms(100));
        seen.add_ended(both(9_000), at_ms(100));
        let (ends, _) = seen.ends(at_ms(100));
        assert_eq!(ends.len(), 1);
        assert_eq!((ends[0].end.received, ends[0].cc.as_str()), (Bytes::new(5_000), "reno"));
    }

    #[test]
    fn an_end_that_is_told_late_is_of_the_connection_that_is_gone() {
        let mut table = ConnectionTable::new(0);
        table.update(there(5_000), at_ms(100));
        // The receiver's socket is reported at once; the sender's last packets are still queued.
        table.update([vec![], vec![socket(End::To, 9_000, None)]], at_ms(200));
        for ms in [300, 400, 500] {
            table.update([vec![], vec![]], at_ms(ms));
        }
        table.update([vec![socket(End::From, 9_000, None)], vec![]], at_ms(600));
        let (ends, unlisted) = table.ends(at_ms(700));
        assert_eq!((ends.len(), unlisted), (1, 0), "{ends:?}");
        assert_eq!((ends[0].cc.as_str(), ends[0].end.received), ("reno", Bytes::new(9_000)));
    }

    #[test]
    fn ports_that_are_used_again_make_another_flow() {
        let mut table = ConnectionTable::new(0);
        for first_ms in [100, 1_000] {
            table.update(there(5_000), at_ms(first_ms));
            let ended = [socket(End::From, 6_000, None), socket(End::To, 6_000, None)];
            table.update(ended.map(|one| vec![one]), at_ms(first_ms + 100));
        }
        // This connection was in no snapshot.
        let ended = [socket(End::From, 7_000, None), socket(End::To, 7_000, None)];
        table.update(ended.map(|one| vec![one]), at_ms(1_500));
        let (ends, _) = table.ends(at_ms(2_000));
        let found: Vec<_> = ends.iter().map(|one| (one.end.id, one.cc.as_str())).collect();
        assert_eq!(found, [(0, "reno"), (1, "reno"), (2, UNKNOWN_CC)]);
    }
}
