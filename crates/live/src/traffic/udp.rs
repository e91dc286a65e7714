//! Applications over UDP: a thread for each of a flow's two ends, which sends what the application there asks
//! for, and tells it what arrives.
//!
//! A datagram begins with its number, by which is found again what the links scheduled for it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;

use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use skyhop_app::{
    Action, App, Application, DATAGRAM_SIZES, Datagram, Event, FlowFacts, Kind as _, Side,
    Transaction,
};
use skyhop_host::clock::{sleep_until, wait, wake_precisely};
use skyhop_host::error::{Context, HostError};
use skyhop_host::frame::FIRST_PORT;
use skyhop_host::socket;
use skyhop_host::thread::{Worker, join, spawn};
use skyhop_model::{Dscp, End};
use skyhop_units::{Bytes, Duration, Instant};

use super::{Stage, address};
use crate::pump::Sojourn;

/// One flow.
#[derive(Debug, Clone)]
pub(crate) struct UdpPlan {
    pub(crate) id: u32,
    /// Its place among all of the run's own traffic, which gives it its port.
    pub(crate) index: usize,
    /// Where the client is.
    pub(crate) from: End,
    pub(crate) app: App,
    pub(crate) dscp: Dscp,
    pub(crate) facts: FlowFacts,
}

/// A flow at work.
pub(crate) struct RunningUdp {
    pub(crate) plan: UdpPlan,
    client: Worker<Vec<Transaction>>,
    server: Worker<Vec<Transaction>>,
}

impl RunningUdp {
    pub(crate) fn start(plan: UdpPlan, stage: &Stage) -> Result<Self, HostError> {
        let (client, server) = (plan.app.client(&plan.facts), plan.app.server(&plan.facts, 0));
        let client = UdpEnd::open(&plan, Side::Client, client, stage)?;
        let server = UdpEnd::open(&plan, Side::Server, server, stage)?;
        let server = spawn(format!("server-{}", plan.id), move || server.work())?;
        let client = spawn(format!("client-{}", plan.id), move || client.work())?;
        Ok(Self { plan, client, server })
    }

    /// Waits for its end: what its application has found, each with what the links scheduled for the datagrams
    /// with its number, there and back. `sojourns` are theirs.
    pub(crate) fn join(
        self,
        sojourns: &[Vec<Sojourn>; 2],
    ) -> Result<Vec<(Transaction, Option<Duration>)>, HostError> {
        let mut results = [join(self.server)?, join(self.client)?].concat();
        results.sort_by_key(|one| one.number);
        let [there, back] = sojourns.each_ref().map(|one_way| of_place(one_way, self.plan.index));
        let scheduled =
            |number: &u64| there.get(number).zip(back.get(number)).map(|(a, b)| *a + *b);
        Ok(results.into_iter().map(|one| (one, scheduled(&one.number))).collect())
    }
}

fn of_place(one_way: &[Sojourn], index: usize) -> BTreeMap<u64, Duration> {
    let own = one_way.iter().filter(|packet| packet.index == index);
    own.map(|packet| (packet.number, packet.sojourn)).collect()
}

/// One end of a flow.
struct UdpEnd {
    side: Side,
    app: Box<dyn Application>,
    start: Instant,
    socket: UdpSocket,
    stage: Stage,
    /// The datagram that is being sent or received: a number and zeros.
    datagram: Vec<u8>,
}

impl UdpEnd {
    fn open(
        plan: &UdpPlan,
        side: Side,
        app: Box<dyn Application>,
        stage: &Stage,
    ) -> Result<Self, HostError> {
        let (place, port) = (
            if side == Side::Client { plan.from } else { plan.from.other() },
            FIRST_PORT + plan.index as u16,
        );
        let socket = stage.namespace(place).inside(move || {
            let socket = UdpSocket::bind(SocketAddrV4::new(address(place), port))
                .context("cannot bind a flow's UDP socket")?;
            let peer = SocketAddrV4::new(address(place.other()), port);
            socket.connect(peer).context("cannot connect a flow's UDP socket")?;
            socket.set_nonblocking(true).context("cannot set up a flow's UDP socket")?;
            Ok(socket)
        })?;
        socket::set_dscp(&socket, plan.dscp)?;
        hold_a_burst(&socket)?;
        let datagram = vec![0; DATAGRAM_SIZES.end().as_u64() as usize];
        Ok(Self { side, app, start: plan.facts.start, socket, stage: stage.clone(), datagram })
    }

    /// Works until nothing more will arrive; returns what the application has found.
    fn work(mut self) -> Result<Vec<Transaction>, HostError> {
        wake_precisely()?;
        sleep_until(self.stage.clock, self.start, &self.stage.stop)?;
        while !self.stage.close.is_set() {
            let has_received = self.receive()?;
            // Once all sending has stopped, what still comes is answered, but asks for nothing new.
            let is_stopped = self.stage.stop.is_set();
            let acts = !is_stopped || (has_received && self.side == Side::Server);
            let until = if acts { self.act()? } else { Instant::NEVER };
            let Stage { clock, stop, close, .. } = &self.stage;
            let (until, stop) = if is_stopped { (Instant::NEVER, close) } else { (until, stop) };
            wait(*clock, until, stop, [(self.socket.as_fd(), PollFlags::POLLIN)])?;
        }
        // Everything has been waited for.
        let results = self.app.take_results(Instant::NEVER);
        Ok([results, self.app.conclude(Instant::NEVER)].concat())
    }

    /// Tells the application what has arrived; whether anything has.
    fn receive(&mut self) -> Result<bool, HostError> {
        let now = self.stage.clock.now();
        let mut has_received = false;
        while let Some(length) = self.next_length()? {
            let Some(number) = self.datagram[..length].first_chunk() else { continue };
            let (number, size) = (u64::from_be_bytes(*number), Bytes::new(length as u64));
            self.app.on_event(now, Event::Datagram(Datagram { number, size }));
            has_received = true;
        }
        Ok(has_received)
    }

    /// Receives a datagram; `None` when there is none.
    fn next_length(&mut self) -> Result<Option<usize>, HostError> {
        match self.socket.recv(&mut self.datagram) {
            Ok(length) => Ok(Some(length)),
            Err(error) if would_pass(error.kind()) => Ok(None),
            Err(error) => Err(error).context("cannot receive a flow's datagram"),
        }
    }

    /// Does what the application asks for until it waits; returns until when.
    fn act(&mut self) -> Result<Instant, HostError> {
        loop {
            match self.app.poll(self.stage.clock.now()) {
                Action::Wait(until) => return Ok(until),
                Action::Send(datagram) => self.send(datagram)?,
                // These are about connections.
                _ => {}
            }
        }
    }

    /// Sends a datagram; one for which there is no room is one that never arrives.
    fn send(&mut self, Datagram { number, size }: Datagram) -> Result<(), HostError> {
        let datagram = &mut self.datagram[..size.as_u64() as usize];
        datagram[..size_of::<u64>()].copy_from_slice(&number.to_be_bytes());
        match self.socket.send(datagram) {
            Err(error)
                if !would_pass(error.kind()) && error.raw_os_error() != Some(libc::ENOBUFS) =>
            {
                Err(error).context("cannot send a flow's datagram")
            }
            _ => Ok(()),
        }
    }
}

/// Makes room for what arrives while this end's thread has no CPU: a datagram that the socket drops
/// would count as lost on the way.
fn hold_a_burst(socket: &UdpSocket) -> Result<(), HostError> {
    let bytes = 4 << 20;
    // The forced size is for those who may; the other is cut to what the system allows everyone.
    setsockopt(socket, sockopt::RcvBufForce, &bytes)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &bytes))
        .context("cannot size a flow's UDP buffer")
}

/// Refused: the other end's socket is closed already, as at the end of a run.
fn would_pass(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused)
}
