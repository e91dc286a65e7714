//! Linux's queue disciplines, configured and read by rtnetlink(7) as tc(8) does.

use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST,
    NetlinkMessage, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};
use skyhop_units::{Bytes, Duration, Rate, Ratio};

use crate::error::{Context, HostError};
use crate::rtnetlink::check_acknowledgement;

/// Netlink constants of rtnetlink.h, pkt_sched.h and gen_stats.h.
const RTM_NEWQDISC: u16 = 36;
const NLA_F_NESTED: u16 = 1 << 15;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_APP: u16 = 4;
const TCA_CAKE_STATS_TIN_STATS: u16 = 10;
const TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS: u16 = 8;
const NETLINK_HEADER: usize = 16;
const TC_HEADER: usize = 20;
const NLA_HEADER: usize = 4;
const ETHERNET: u8 = 1;

/// Queue discipline with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum TcQdisc {
    /// Token bucket filter, `tbf`: limits the rate, except for bursts of the bucket's size.
    Tbf {
        /// Rate at which the bucket fills.
        rate: Rate,
        /// Size of the bucket; larger packets never pass.
        burst: Bytes,
        /// Limit of the child discipline, if that is a fifo, in the fifo's unit (packets or bytes):
        /// the kernel passes the limit to the child.
        limit: u32,
    },
    /// Delay line with random loss, `netem`.
    Netem(Netem),
    /// Fifo limited in packets, `pfifo`.
    Pfifo {
        /// Largest backlog, in packets for pfifo and in bytes for bfifo.
        limit: u32,
    },
    /// Fifo limited in bytes, link headers included, `bfifo`.
    Bfifo {
        /// Largest backlog, in packets for pfifo and in bytes for bfifo.
        limit: u32,
    },
    /// Fifo limited in packets that drops at its head, `pfifo_head_drop`.
    PfifoHeadDrop {
        /// Largest backlog, in packets.
        limit: u32,
    },
    /// Any other discipline, by name.
    Other {
        /// Name as in tc(8).
        name: &'static str,
        /// Parameters in netlink encoding.
        options: TcOptions,
    },
}

/// Parameters of a discipline, encoded as in pkt_sched.h.
#[derive(Debug, Clone, PartialEq)]
pub enum TcOptions {
    /// Netlink attributes: type and value.
    Attributes(Vec<(u16, Vec<u8>)>),
    /// C structure of 32-bit numbers.
    Structure(Vec<u32>),
}

/// Parameters of netem, the delay line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Netem {
    /// Delay of each packet.
    pub delay: Duration,
    /// Rate in B/s at which packets leave after the delay, one after the other. Zero: packets leave independently of
    /// each other, so that a packet with a shorter delay overtakes others.
    pub bytes_per_second: u64,
    /// Loss probability, applied when a packet enters.
    pub loss: Ratio,
    /// Seed of the random losses; Linux 6.6 and newer.
    pub seed: u64,
}

/// Packet limit of netem that is never reached.
const NO_LIMIT: u32 = 100_000_000;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_PRNG_SEED: u16 = 14;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

impl TcQdisc {
    fn name(&self) -> &'static str {
        match self {
            Self::Tbf { .. } => "tbf",
            Self::Netem(_) => "netem",
            Self::Pfifo { .. } => "pfifo",
            Self::Bfifo { .. } => "bfifo",
            Self::PfifoHeadDrop { .. } => "pfifo_head_drop",
            Self::Other { name, .. } => name,
        }
    }

    /// Value of the attribute `TCA_OPTIONS`.
    fn options(&self) -> Vec<u8> {
        match self {
            Self::Tbf { rate, burst, limit } => tbf_options(*rate, *burst, *limit),
            Self::Netem(netem) => netem.options(),
            Self::Pfifo { limit } | Self::Bfifo { limit } | Self::PfifoHeadDrop { limit } => {
                limit.to_ne_bytes().to_vec()
            }
            Self::Other { options: TcOptions::Attributes(attributes), .. } => {
                attributes.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect()
            }
            Self::Other { options: TcOptions::Structure(numbers), .. } => {
                numbers.iter().copied().flat_map(u32::to_ne_bytes).collect()
            }
        }
    }

    /// Type of the options attribute: newer disciplines require the flag for nested attributes.
    fn options_kind(&self) -> u16 {
        match self {
            Self::Other { options: TcOptions::Attributes(_), .. } => TCA_OPTIONS | NLA_F_NESTED,
            _ => TCA_OPTIONS,
        }
    }
}

/// Options of tbf: `struct tc_tbf_qopt`, i.e. two `tc_ratespec` of 12 bytes each, limit, buffer, mtu.
fn tbf_options(rate: Rate, burst: Bytes, limit: u32) -> Vec<u8> {
    let mut parameters = [0; 36];
    // The 64-bit attribute contains the exact rate. The link layer set here tells the kernel that
    // no rate tables follow.
    parameters[1] = ETHERNET;
    parameters[24..28].copy_from_slice(&limit.to_ne_bytes());
    let mut options = attribute(TCA_TBF_PARMS, &parameters);
    options.extend(attribute(TCA_TBF_RATE64, &bytes_per_second(rate).to_ne_bytes()));
    options.extend(attribute(TCA_TBF_BURST, &(burst.as_u64() as u32).to_ne_bytes()));
    options
}

impl Netem {
    /// Options of netem: `struct tc_netem_qopt`, i.e. latency, limit, loss, gap, duplicate, jitter.
    fn options(self) -> Vec<u8> {
        let loss = (self.loss.fraction() * f64::from(u32::MAX)).round() as u32;
        let mut options: Vec<u8> =
            [0, NO_LIMIT, loss, 0, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        options.extend(attribute(TCA_NETEM_LATENCY64, &self.delay.as_nanos().to_ne_bytes()));
        // A change request keeps the old rate unless it contains a rate. The kernel uses the rate
        // in the 64-bit attribute if that is larger.
        options.extend(attribute(TCA_NETEM_RATE, &[0; 16]));
        options.extend(attribute(TCA_NETEM_RATE64, &self.bytes_per_second.to_ne_bytes()));
        options.extend(attribute(TCA_NETEM_PRNG_SEED, &self.seed.to_ne_bytes()));
        options
    }
}

/// Rate in bytes per second, the unit of disciplines, at least 1.
pub fn bytes_per_second(rate: Rate) -> u64 {
    (rate.bits_per_second() / 8).max(1)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute = DefaultNla::new(kind, value.to_vec());
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);
    bytes
}

/// Position of a discipline: at the root of a device, or below the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Root discipline, handle 1:.
    Root,
    /// Child of the root's only class, handle 2:.
    Below,
}

impl Position {
    const fn handle(self) -> TcHandle {
        match self {
            Self::Root => TcHandle { major: 1, minor: 0 },
            Self::Below => TcHandle { major: 2, minor: 0 },
        }
    }

    const fn parent(self) -> TcHandle {
        match self {
            Self::Root => TcHandle::ROOT,
            Self::Below => TcHandle { major: 1, minor: 1 },
        }
    }
}

/// Counters of a discipline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcStats {
    /// Packets that have left the discipline.
    pub packets: u64,
    /// Bytes that have left the discipline, link headers included.
    pub bytes: Bytes,
    /// Packets in the queue.
    pub backlog_packets: u64,
    /// Bytes in the queue.
    pub backlog_bytes: Bytes,
    /// Packets dropped by this discipline or its child.
    pub drops: u64,
    /// Packets that this discipline has marked with ECN CE.
    pub marks: u64,
}

/// Netlink socket that configures the disciplines of one namespace.
#[derive(Debug)]
pub struct TrafficControl {
    kernel: OwnedFd,
}

impl TrafficControl {
    /// Open a socket in the calling thread's namespace; it can be used from any thread.
    ///
    /// # Errors
    /// The kernel refuses the rtnetlink socket.
    pub fn open() -> Result<Self, HostError> {
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        let kernel = socket::socket(family, SockType::Raw, flags, SockProtocol::NetlinkRoute)
            .context("cannot open rtnetlink")?;
        Ok(Self { kernel })
    }

    /// Add a discipline to a device of the calling thread's namespace; return the device's index.
    ///
    /// # Errors
    /// The kernel lacks the discipline, or refuses it.
    pub fn add(&self, device: &str, at: Position, qdisc: &TcQdisc) -> Result<u32, HostError> {
        let index = if_nametoindex(device).context("cannot find a device")?;
        self.request(index, at, qdisc, NLM_F_CREATE | NLM_F_EXCL)?;
        Ok(index)
    }

    /// Change the parameters of an existing discipline; queued packets stay.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn change(&self, device: u32, at: Position, qdisc: &TcQdisc) -> Result<(), HostError> {
        self.request(device, at, qdisc, 0)
    }

    fn request(
        &self,
        device: u32,
        at: Position,
        qdisc: &TcQdisc,
        flags: u16,
    ) -> Result<(), HostError> {
        let mut message = TcMessage::default();
        message.header.index = device as i32;
        (message.header.handle, message.header.parent) = (at.handle(), at.parent());
        message.attributes = vec![
            TcAttribute::Kind(qdisc.name().to_owned()),
            TcAttribute::Other(DefaultNla::new(qdisc.options_kind(), qdisc.options())),
        ];
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.send(message, flags | NLM_F_ACK)
            .and_then(|()| self.receive(check_acknowledgement))
            .and_then(std::convert::identity)
            .context(&format!("cannot set the discipline {}", qdisc.name()))
    }

    /// Read the counters of a device's root discipline and its child.
    ///
    /// # Errors
    /// The kernel refuses the request, or the device has other disciplines.
    pub fn stats(&self, device: u32) -> Result<[TcStats; 2], HostError> {
        let action = "cannot read the disciplines' counters";
        let mut found = [None; 2];
        self.send(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()), NLM_F_DUMP)
            .context(action)?;
        while !self.receive(|answer| read_answer(answer, device, &mut found)).context(action)? {}
        let [Some(root), Some(below)] = found else {
            let reason = "the device has other disciplines than skyhop set".to_owned();
            return Err(HostError::System { action: action.to_owned(), reason });
        };
        Ok([root, below])
    }

    fn send(&self, body: RouteNetlinkMessage, flags: u16) -> Result<(), Errno> {
        let mut message = NetlinkMessage::from(body);
        message.header.flags = flags | NLM_F_REQUEST;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        socket::send(self.kernel.as_raw_fd(), &bytes, MsgFlags::empty()).map(|_| ())
    }

    fn receive<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Result<T, Errno> {
        let mut answer = [0; 32 << 10];
        let length = socket::recv(self.kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        Ok(read(&answer[..length]))
    }
}

/// Parse a part of the kernel's dump and store the counters of the device's disciplines in `found`;
/// return true at the end of the dump.
fn read_answer(answer: &[u8], device: u32, found: &mut [Option<TcStats>; 2]) -> bool {
    let mut rest = answer;
    while rest.len() >= NETLINK_HEADER {
        let length = number(rest, 0) as usize;
        let kind = u16::from_ne_bytes([rest[4], rest[5]]);
        if length < NETLINK_HEADER || length > rest.len() {
            return true;
        }
        if kind != RTM_NEWQDISC {
            return true;
        }
        let message = &rest[NETLINK_HEADER..length];
        if message.len() >= TC_HEADER && number(message, 4) == device {
            let place = [Position::Root, Position::Below]
                .into_iter()
                .position(|at| u32::from(at.handle()) == number(message, 8));
            if let Some(place) = place {
                found[place] = Some(read_stats(&message[TC_HEADER..]));
            }
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    false
}

fn read_stats(attributes: &[u8]) -> TcStats {
    let mut stats = TcStats::default();
    let name = values(attributes, TCA_KIND).next().unwrap_or_default();
    for counted in values(attributes, TCA_STATS2) {
        if let Some(basic) = values(counted, TCA_STATS_BASIC).find(|basic| basic.len() >= 12) {
            stats.bytes = Bytes::new(long_number(basic, 0));
            stats.packets = number(basic, 8).into();
        }
        if let Some(queue) = values(counted, TCA_STATS_QUEUE).find(|queue| queue.len() >= 12) {
            stats.backlog_packets = number(queue, 0).into();
            stats.backlog_bytes = Bytes::new(number(queue, 4).into());
            stats.drops = number(queue, 8).into();
        }
        stats.marks = values(counted, TCA_STATS_APP).map(|own| marks(name, own)).sum();
    }
    stats
}

/// ECN marks counted in a discipline's own statistics, by their offset in `struct tc_NAME_xstats`.
fn marks(name: &[u8], own: &[u8]) -> u64 {
    let at = |at: usize| if own.len() >= at + 4 { u64::from(number(own, at)) } else { 0 };
    match name.strip_suffix(b"\0").unwrap_or(name) {
        // Marks of the control law (ecn_mark), and marks above ce_threshold (ce_mark).
        b"codel" => at(24) + at(32),
        b"fq_codel" => at(12) + at(28),
        b"pie" => at(36),
        b"fq_pie" => at(16),
        b"red" => at(12),
        b"fq" if own.len() >= 88 => long_number(own, 80),
        b"cake" => {
            let tins = values(own, TCA_CAKE_STATS_TIN_STATS).flat_map(attributes_of);
            let marked = tins.flat_map(|(_, tin)| {
                values(tin, TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS).filter(|value| value.len() >= 4)
            });
            marked.map(|value| u64::from(number(value, 0))).sum()
        }
        _ => 0,
    }
}

/// Iterate over netlink attributes: type and value.
fn attributes_of(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).flatten().map(|one| {
        let (kind, length) = (one.kind(), one.value_length());
        (kind, &one.into_inner()[NLA_HEADER..][..length])
    })
}

/// Iterate over the values of attributes of one type.
fn values(bytes: &[u8], kind: u16) -> impl Iterator<Item = &[u8]> {
    attributes_of(bytes).filter(move |(one, _)| *one == kind).map(|(_, value)| value)
}

fn long_number(bytes: &[u8], at: usize) -> u64 {
    let (first, second) = (u64::from(number(bytes, at)), u64::from(number(bytes, at + 4)));
    if cfg!(target_endian = "little") { second << 32 | first } else { first << 32 | second }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::UdpSocket;
    use std::time::Duration as WallDuration;

    use super::*;
    use crate::device::bring_up;
    use crate::namespace::NetNamespace;

    /// Bytes of a datagram whose packet has 1514 B with the headers of UDP, IP and Ethernet.
    const DATAGRAM: usize = 1472;
    /// Packets that are sent while the bucket takes a minute for each; one more follows when it is fast.
    const SENT: u32 = 20;

    /// Numbers of the packets that pass a bucket with this child, and the packets that it drops.
    fn passed(child: &TcQdisc, limit: u32) -> Result<(Vec<u32>, u64), HostError> {
        let bucket = |bits_per_second| TcQdisc::Tbf {
            rate: Rate::from_bits_per_second(bits_per_second),
            burst: Bytes::new(1514),
            limit,
        };
        let (control, device, socket) = NetNamespace::create()?.inside(|| {
            bring_up("lo", 0)?;
            let control = TrafficControl::open()?;
            let device = control.add("lo", Position::Root, &bucket(200))?;
            control.add("lo", Position::Below, child)?;
            let socket = UdpSocket::bind("127.0.0.1:0").context("cannot open a socket")?;
            Ok::<_, HostError>((control, device, socket))
        })?;
        let send = |number: u32| -> io::Result<()> {
            let mut datagram = [0; DATAGRAM];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&datagram, socket.local_addr()?).map(|_| ())
        };
        let receive = || -> io::Result<u32> {
            let mut datagram = [0; DATAGRAM];
            socket.recv(&mut datagram)?;
            let [a, b, c, d, ..] = datagram;
            Ok(u32::from_be_bytes([a, b, c, d]))
        };
        socket.set_read_timeout(Some(WallDuration::from_secs(60))).unwrap();
        (0..SENT).try_for_each(send).unwrap();
        control.change(device, Position::Root, &bucket(1_000_000_000))?;
        send(SENT).unwrap();
        let drops = control.stats(device)?[0].drops;
        let passed = u64::from(SENT + 1) - drops;
        Ok(((0..passed).map(|_| receive().unwrap()).collect(), drops))
    }

    /// The link's `fifo` drops the same packets: `a_full_queue_drops_at_its_tail_or_at_its_front` in
    /// `crates/link/tests/link/behaviour.rs`.
    #[test]
    fn a_full_queue_drops_at_its_tail_or_at_its_front() {
        for (child, limit, expected) in [
            (TcQdisc::Pfifo { limit: 4 }, 4, vec![0, 1, 2, 3, 4]),
            (TcQdisc::Bfifo { limit: 4543 }, 4543, vec![0, 1, 2, 3]),
            (TcQdisc::PfifoHeadDrop { limit: 4 }, 4, vec![0, 17, 18, 19, 20]),
            (TcQdisc::PfifoHeadDrop { limit: 1 }, 1, vec![0, 20]),
        ] {
            let drops = u64::from(SENT + 1) - expected.len() as u64;
            match passed(&child, limit) {
                Ok(found) => assert_eq!(found, (expected, drops), "{child:?}"),
                Err(error) => return skyhop_needs::missing("root", error.to_string()),
            }
        }
    }

    #[test]
    fn a_netems_options_begin_with_its_old_structure() {
        let half = Ratio::new(0.5).unwrap();
        let delay = Duration::from_millis(20);
        let options = Netem { delay, bytes_per_second: 3, loss: half, seed: 9 }.options();
        assert_eq!((number(&options, 4), number(&options, 8)), (NO_LIMIT, 1 << 31));
        let attributes: Vec<(u16, Vec<u8>)> = NlasIterator::new(&options[24..])
            .map(|one| one.map(|one| (one.kind(), one.value().to_vec())).unwrap())
            .collect();
        let delay = (TCA_NETEM_LATENCY64, 20_000_000_u64.to_ne_bytes().to_vec());
        assert!(attributes.contains(&delay), "{attributes:?}");
        let seed = (TCA_NETEM_PRNG_SEED, 9_u64.to_ne_bytes().to_vec());
        assert!(attributes.contains(&seed), "{attributes:?}");
    }

    #[test]
    fn disciplines_are_set_changed_and_asked() {
        let rate = Rate::from_bits_per_second(8_000_000);
        let bucket = |rate| TcQdisc::Tbf { rate, burst: Bytes::new(1514), limit: 9000 };
        let made = NetNamespace::create().and_then(|namespace| {
            namespace.inside(|| {
                let control = TrafficControl::open()?;
                let device = control.add("lo", Position::Root, &bucket(rate))?;
                control.add("lo", Position::Below, &TcQdisc::Bfifo { limit: 9000 })?;
                Ok::<_, HostError>((control, device))
            })
        });
        let (control, device) = match made {
            Ok(made) => made,
            Err(error) => return skyhop_needs::missing("root", error.to_string()),
        };
        control.change(device, Position::Root, &bucket(Rate::from_bits_per_second(9))).unwrap();
        control.change(device, Position::Below, &TcQdisc::Bfifo { limit: 1 }).unwrap();
        assert_eq!(control.stats(device).unwrap(), [TcStats::default(); 2]);
        // No discipline exists at another device's root.
        let error = control.change(device + 1, Position::Root, &bucket(rate)).unwrap_err();
        assert!(error.to_string().starts_with("cannot set the discipline tbf"), "{error}");
        assert!(control.stats(device + 1).is_err());
    }

    #[test]
    fn marks_are_where_each_discipline_counts_them() {
        let numbers: Vec<u8> = (1..=22).flat_map(u32::to_ne_bytes).collect();
        let counted = |name: &[u8]| marks(name, &numbers);
        assert_eq!(counted(b"codel\0"), 7 + 9);
        assert_eq!(counted(b"fq_codel\0"), 4 + 8);
        assert_eq!([b"pie", b"red"].map(|name| counted(name)), [10, 4]);
        assert_eq!((counted(b"fq_pie\0"), counted(b"sfq\0")), (5, 0));
        assert_eq!(counted(b"fq\0"), long_number(&numbers, 80));
        let tin = |marked: u32| {
            let one = attribute(TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS, &marked.to_ne_bytes());
            attribute(1, &one)
        };
        let tins = attribute(TCA_CAKE_STATS_TIN_STATS, &[tin(3), tin(4)].concat());
        assert_eq!(marks(b"cake\0", &tins), 7);
        for name in [b"codel".as_slice(), b"fq", b"cake"] {
            assert_eq!(marks(name, &numbers[..3]), 0, "a short answer");
        }
    }

    #[test]
    fn damaged_answers_are_read_to_their_end() {
        let mut found = [None; 2];
        for length in 0..64 {
            let mut answer = vec![0xff; length];
            assert!(read_answer(&answer, 1, &mut found) || length < NETLINK_HEADER);
            answer.iter_mut().for_each(|byte| *byte = 0);
            read_answer(&answer, 1, &mut found);
        }
        assert_eq!(found, [None; 2]);
    }
}
