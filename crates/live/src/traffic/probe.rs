//! UDP probes: packets that the other end sends back at once.

use skyhop_model::End;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;

use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use skyhop_record::ProbeRow;
use skyhop_units::{Duration, Instant};

use super::{Stage, address};
use crate::pump::ProbeSojourn;
use skyhop_host::clock::{sleep_until, wait, wake_precisely};
use skyhop_host::error::{Context, HostError};
use skyhop_host::frame::FIRST_PORT;
use skyhop_host::thread::{Worker, join, spawn};

/// The sequence number at the beginning of each packet.
const SEQ_BYTES: usize = size_of::<u64>();

/// One probe.
#[derive(Debug, Clone)]
pub(crate) struct ProbePlan {
    pub(crate) id: u32,
    /// Its place among all of the run's own traffic, which gives it its port.
    pub(crate) index: usize,
    pub(crate) from: End,
    pub(crate) start: Instant,
    pub(crate) stop: Instant,
    pub(crate) interval: Duration,
    pub(crate) payload_bytes: usize,
}

/// A probe at work.
pub(crate) struct RunningProbe {
    pub(crate) plan: ProbePlan,
    sender: Worker<Vec<Sent>>,
    echo: Worker<()>,
}

/// A packet that was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    back: Option<Instant>,
}

impl RunningProbe {
    pub(crate) fn start(plan: ProbePlan, stage: &Stage) -> Result<Self, HostError> {
        let (near, far) = (plan.from, plan.from.other());
        let port = FIRST_PORT + plan.index as u16;
        let open = |end: End| {
            stage.namespace(end).inside(move || {
                let socket = UdpSocket::bind(SocketAddrV4::new(address(end), port))
                    .context("cannot bind a probe's socket")?;
                let peer = SocketAddrV4::new(address(end.other()), port);
                socket.connect(peer).context("cannot connect a probe's socket")?;
                socket.set_nonblocking(true).context("cannot set up a probe's socket")?;
                Ok(socket)
            })
        };
        let (sending, echoing) = (open(near)?, open(far)?);
        for socket in [&sending, &echoing] {
            hold_a_burst(socket)?;
        }
        let (echo_stage, sender_stage, sender_plan) = (stage.clone(), stage.clone(), plan.clone());
        let echo = spawn(format!("echo-{}", plan.id), move || echo_all(&echoing, &echo_stage))?;
        let sender = spawn(format!("probe-{}", plan.id), move || {
            send_all(&sending, &sender_plan, &sender_stage)
        })?;
        Ok(Self { plan, sender, echo })
    }

    /// Waits for its end. `scheduled` holds the link's own times, forward and back.
    pub(crate) fn join(
        self,
        scheduled: &[Vec<ProbeSojourn>; 2],
    ) -> Result<Vec<ProbeRow>, HostError> {
        join(self.echo)?;
        let sent = join(self.sender)?;
        let [there, back] = scheduled.each_ref().map(|one_way| sojourns(one_way, self.plan.index));
        let rows = sent.into_iter().enumerate().map(|(seq, packet)| {
            let seq = seq as u64;
            let scheduled = there.get(&seq).zip(back.get(&seq)).map(|(a, b)| (*a + *b).as_nanos());
            ProbeRow {
                probe: self.plan.id as i32,
                seq: seq as i64,
                t_ns: packet.at.as_nanos() as i64,
                rtt_ns: packet.back.map(|back| (back - packet.at).as_nanos() as i64),
                scheduled_rtt_ns: scheduled.map(|ns| ns as i64),
            }
        });
        Ok(rows.collect())
    }
}

/// Makes room for what arrives while this end's thread has no CPU: a packet that the socket drops
/// would count as lost on the way.
fn hold_a_burst(socket: &UdpSocket) -> Result<(), HostError> {
    let bytes = 4 << 20;
    // The forced size is for those who may; the other is cut to what the system allows everyone.
    setsockopt(socket, sockopt::RcvBufForce, &bytes)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &bytes))
        .context("cannot size a probe's buffer")
}

fn sojourns(one_way: &[ProbeSojourn], index: usize) -> BTreeMap<u64, Duration> {
    let own = one_way.iter().filter(|packet| packet.index == index);
    own.map(|packet| (packet.seq, packet.sojourn)).collect()
}

fn echo_all(socket: &UdpSocket, stage: &Stage) -> Result<(), HostError> {
    wake_precisely()?;
    let mut packet = vec![0; 1 << 16];
    while !stage.close.is_set() {
        wait(stage.clock, Instant::NEVER, &stage.close, Some((socket.as_fd(), PollFlags::POLLIN)))?;
        while let Some(length) = receive(socket, &mut packet)? {
            send(socket, &packet[..length])?;
        }
    }
    Ok(())
}

fn send_all(socket: &UdpSocket, plan: &ProbePlan, stage: &Stage) -> Result<Vec<Sent>, HostError> {
    wake_precisely()?;
    let mut packet = vec![0; plan.payload_bytes];
    let mut received = vec![0; 1 << 16];
    let mut sent: Vec<Sent> = Vec::new();
    let mut next = plan.start;
    sleep_until(stage.clock, next, &stage.stop)?;
    loop {
        let sending = next < plan.stop && !stage.stop.is_set();
        if !sending && (stage.close.is_set() || sent.is_empty()) {
            return Ok(sent);
        }
        if sending && stage.clock.now() >= next {
            packet[..SEQ_BYTES].copy_from_slice(&(sent.len() as u64).to_be_bytes());
            sent.push(Sent { at: stage.clock.now(), back: None });
            send(socket, &packet)?;
            next += plan.interval;
            // After a pause of the machine the missed packets stay missed: no bursts.
            let behind = stage.clock.now().saturating_since(next).as_nanos();
            next += plan.interval * (behind / plan.interval.as_nanos());
        }
        let (until, stop) =
            if sending { (next, &stage.stop) } else { (Instant::NEVER, &stage.close) };
        wait(stage.clock, until, stop, Some((socket.as_fd(), PollFlags::POLLIN)))?;
        let back = stage.clock.now();
        while receive(socket, &mut received)?.is_some() {
            note_reply(&mut sent, &received, back);
        }
    }
}

fn note_reply(sent: &mut [Sent], reply: &[u8], back: Instant) {
    let seq = reply.first_chunk().map(|seq| u64::from_be_bytes(*seq));
    if let Some(packet) = seq.and_then(|seq| sent.get_mut(seq as usize)) {
        packet.back.get_or_insert(back);
    }
}

/// The next packet; `None` when there is none.
fn receive(socket: &UdpSocket, packet: &mut [u8]) -> Result<Option<usize>, HostError> {
    match socket.recv(packet) {
        Ok(length) => Ok(Some(length)),
        Err(error) if would_pass(error.kind()) => Ok(None),
        Err(error) => Err(error).context("cannot receive a probe's packet"),
    }
}

/// Sends a packet; one for which there is no room is one that never comes back.
fn send(socket: &UdpSocket, packet: &[u8]) -> Result<(), HostError> {
    match socket.send(packet) {
        Err(error) if !would_pass(error.kind()) && error.raw_os_error() != Some(libc::ENOBUFS) => {
            Err(error).context("cannot send a probe's packet")
        }
        _ => Ok(()),
    }
}

/// Refused: the other end's socket is closed already, as at the end of a run.
fn would_pass(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused)
}
