//! Applications over UDP: one thread per end of a flow, which sends the application's datagrams and reports arrivals
//! to it.
//!
//! A datagram begins with its number, by which the time that the links scheduled for it is found.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;

use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use skyhop_app::{
    Action, App, AppKind as _, Application, DATAGRAM_SIZES, Datagram, Event, FlowFacts, Side,
    Transaction,
};
use skyhop_host::clock::{minimize_timer_slack, sleep_until, wait};
use skyhop_host::error::{Context, HostError};
use skyhop_host::frame::FIRST_PORT;
use skyhop_host::socket;
use skyhop_host::thread::{Worker, join, spawn};
use skyhop_model::{Dscp, End};
use skyhop_units::{Bytes, Duration, Instant};

use super::{Testbench, address};
use crate::pump::Sojourn;

/// Plan of one UDP flow.
#[derive(Debug, Clone)]
pub(crate) struct UdpPlan {
    pub(crate) id: u32,
    /// Index among all traffic of the run, which determines the port.
    pub(crate) index: usize,
    /// End at which the client runs.
    pub(crate) from: End,
    pub(crate) app: App,
    pub(crate) dscp: Dscp,
    pub(crate) facts: FlowFacts,
}

/// UDP flow whose threads are running.
pub(crate) struct RunningUdp {
    pub(crate) plan: UdpPlan,
    client: Worker<Vec<Transaction>>,
    server: Worker<Vec<Transaction>>,
}

impl RunningUdp {
    pub(crate) fn start(plan: UdpPlan, testbench: &Testbench) -> Result<Self, HostError> {
        let (client, server) = (plan.app.client(&plan.facts), plan.app.server(&plan.facts, 0));
        let client = UdpEnd::open(&plan, Side::Client, client, testbench)?;
        let server = UdpEnd::open(&plan, Side::Server, server, testbench)?;
        let server = spawn(format!("server-{}", plan.id), move || server.run())?;
        let client = spawn(format!("client-{}", plan.id), move || client.run())?;
        Ok(Self { plan, client, server })
    }

    /// Wait for both threads. Return the application's transactions, each with the scheduled round trip of the
    /// two datagrams that have the transaction's number. The round trip is the sum of the `sojourns` of both
    /// directions; `None` if a direction has no sojourn for the number.
    pub(crate) fn join(
        self,
        sojourns: &[Vec<Sojourn>; 2],
    ) -> Result<Vec<(Transaction, Option<Duration>)>, HostError> {
        let mut results = [join(self.server)?, join(self.client)?].concat();
        results.sort_by_key(|one| one.number);
        let [there, back] =
            sojourns.each_ref().map(|one_way| sojourns_of(one_way, self.plan.index));
        let scheduled =
            |number: &u64| there.get(number).zip(back.get(number)).map(|(a, b)| *a + *b);
        Ok(results.into_iter().map(|one| (one, scheduled(&one.number))).collect())
    }
}

fn sojourns_of(one_way: &[Sojourn], index: usize) -> BTreeMap<u64, Duration> {
    let own = one_way.iter().filter(|packet| packet.index == index);
    own.map(|packet| (packet.number, packet.sojourn)).collect()
}

/// State of one end of a UDP flow.
struct UdpEnd {
    side: Side,
    app: Box<dyn Application>,
    start: Instant,
    socket: UdpSocket,
    testbench: Testbench,
    /// Buffer of the datagram being sent or received: a number and zeros.
    datagram: Vec<u8>,
}

impl UdpEnd {
    fn open(
        plan: &UdpPlan,
        side: Side,
        app: Box<dyn Application>,
        testbench: &Testbench,
    ) -> Result<Self, HostError> {
        let (place, port) = (
            if side == Side::Client { plan.from } else { plan.from.other() },
            FIRST_PORT + plan.index as u16,
        );
        let socket = testbench.namespace(place).inside(move || {
            let socket = UdpSocket::bind(SocketAddrV4::new(address(place), port))
                .context("cannot bind a flow's UDP socket")?;
            let peer = SocketAddrV4::new(address(place.other()), port);
            socket.connect(peer).context("cannot connect a flow's UDP socket")?;
            socket.set_nonblocking(true).context("cannot set up a flow's UDP socket")?;
            Ok(socket)
        })?;
        socket::set_dscp(&socket, plan.dscp)?;
        enlarge_receive_buffer(&socket)?;
        let datagram = vec![0; DATAGRAM_SIZES.end().as_u64() as usize];
        Ok(Self {
            side,
            app,
            start: plan.facts.start,
            socket,
            testbench: testbench.clone(),
            datagram,
        })
    }

    /// Run this end until no more packets will arrive; return the application's transactions.
    fn run(mut self) -> Result<Vec<Transaction>, HostError> {
        minimize_timer_slack()?;
        sleep_until(self.testbench.clock, self.start, &self.testbench.stop)?;
        while !self.testbench.close.is_set() {
            let has_received = self.receive()?;
            // After sending has stopped, the server still answers arrivals, but the client sends nothing new.
            let is_stopped = self.testbench.stop.is_set();
            let acts = !is_stopped || (has_received && self.side == Side::Server);
            let until = if acts { self.act()? } else { Instant::NEVER };
            let Testbench { clock, stop, close, .. } = &self.testbench;
            let (until, stop) = if is_stopped { (Instant::NEVER, close) } else { (until, stop) };
            wait(*clock, until, stop, [(self.socket.as_fd(), PollFlags::POLLIN)])?;
        }
        // After `close` all transactions are over.
        let results = self.app.take_results(Instant::NEVER);
        Ok([results, self.app.conclude(Instant::NEVER)].concat())
    }

    /// Pass received datagrams to the application; return whether any were received.
    fn receive(&mut self) -> Result<bool, HostError> {
        let now = self.testbench.clock.now();
        let mut has_received = false;
        while let Some(length) = self.receive_one()? {
            let Some(number) = self.datagram[..length].first_chunk() else { continue };
            let (number, size) = (u64::from_be_bytes(*number), Bytes::new(length as u64));
            self.app.on_event(now, Event::Datagram(Datagram { number, size }));
            has_received = true;
        }
        Ok(has_received)
    }

    /// Receive a datagram into the buffer; return its length, `None` if there is none.
    fn receive_one(&mut self) -> Result<Option<usize>, HostError> {
        match self.socket.recv(&mut self.datagram) {
            Ok(length) => Ok(Some(length)),
            Err(error) if is_transient(error.kind()) => Ok(None),
            Err(error) => Err(error).context("cannot receive a flow's datagram"),
        }
    }

    /// Execute the application's actions until it waits; return the time until which it waits.
    fn act(&mut self) -> Result<Instant, HostError> {
        loop {
            match self.app.poll(self.testbench.clock.now()) {
                Action::Wait(until) => return Ok(until),
                Action::Send(datagram) => self.send(datagram)?,
                // The other actions concern TCP connections.
                _ => {}
            }
        }
    }

    /// Send a datagram; it is lost if the socket has no room for it.
    fn send(&mut self, Datagram { number, size }: Datagram) -> Result<(), HostError> {
        let datagram = &mut self.datagram[..size.as_u64() as usize];
        datagram[..size_of::<u64>()].copy_from_slice(&number.to_be_bytes());
        match self.socket.send(datagram) {
            Err(error)
                if !is_transient(error.kind()) && error.raw_os_error() != Some(libc::ENOBUFS) =>
            {
                Err(error).context("cannot send a flow's datagram")
            }
            _ => Ok(()),
        }
    }
}

/// Enlarge the receive buffer, so that it has room for the datagrams that arrive while this end's thread has no
/// CPU: a datagram dropped at the socket would count as lost in the network.
fn enlarge_receive_buffer(socket: &UdpSocket) -> Result<(), HostError> {
    let bytes = 4 << 20;
    // SO_RCVBUFFORCE needs CAP_NET_ADMIN; the kernel limits SO_RCVBUF to net.core.rmem_max.
    setsockopt(socket, sockopt::RcvBufForce, &bytes)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &bytes))
        .context("cannot size a flow's UDP buffer")
}

/// Whether an error is transient. ECONNREFUSED: the other end's socket is already closed, as at the end of a run.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused)
}
