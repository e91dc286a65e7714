//! Applications over TCP: one thread per end of a flow, which executes the application's actions on sockets and
//! reports socket events to it.
//!
//! The client is at the flow's end `from`. The application determines which end sends most of the data. That end
//! takes the flow's last sample, and resets the connections that are still open at the flow's stop.

mod client;
mod connection;
mod options;
mod server;
mod view;

use std::collections::HashMap;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::PollFlags;
use skyhop_app::{App, AppKind as _, Application, FlowFacts, Reader, Side, TcpOptions};
use skyhop_host::clock::wait;
use skyhop_host::error::HostError;
use skyhop_host::frame::FIRST_PORT;
use skyhop_host::thread::{Worker, join, spawn};
use skyhop_model::{Dscp, End};
use skyhop_units::Instant;
use tracing::debug;

use self::connection::Connection;
pub(crate) use self::options::check as check_options;
pub(crate) use self::view::{TcpEnd, TcpView};
use super::{Addresses, Testbench};

/// Plan of one TCP flow.
#[derive(Debug, Clone)]
pub(crate) struct TcpPlan {
    pub(crate) id: u32,
    /// Index among all traffic of the run, which determines the port.
    pub(crate) index: usize,
    /// End at which the client runs.
    pub(crate) from: End,
    pub(crate) start: Instant,
    pub(crate) stop: Instant,
    /// Congestion control as named in the scenario.
    pub(crate) cc: String,
    /// Congestion control as named in the kernel.
    pub(crate) kernel_cc: String,
    pub(crate) app: App,
    pub(crate) options: TcpOptions,
    pub(crate) dscp: Dscp,
    /// Seed of the application's random draws.
    pub(crate) seed: u64,
    pub(crate) addresses: Addresses,
}

/// TCP flow whose threads are running.
pub(crate) struct RunningTcp {
    flow: Arc<Flow>,
    client: Worker<()>,
    server: Worker<()>,
}

impl RunningTcp {
    pub(crate) fn start(plan: TcpPlan, testbench: &Testbench) -> Result<Self, HostError> {
        let far = plan.from.other();
        let address = SocketAddrV4::new(plan.addresses.of(far), FIRST_PORT + plan.index as u16);
        let listener = testbench.namespace(far).inside(|| server::listen(&plan, address))?;
        debug!(flow = plan.id, cc = plan.kernel_cc, %address, start = %plan.start, "flow listens");
        let view = Arc::new(TcpView::new(plan.app.sends())?);
        let (testbench, numbers) = (testbench.clone(), Mutex::default());
        let flow = Arc::new(Flow { plan, address, listener, numbers, view, testbench });
        let server = spawn(format!("server-{}", flow.plan.id), {
            let flow = Arc::clone(&flow);
            move || server::run(&flow)
        })?;
        let client = spawn(format!("client-{}", flow.plan.id), {
            let flow = Arc::clone(&flow);
            move || client::run(&flow)
        })?;
        Ok(Self { flow, client, server })
    }

    pub(crate) fn plan(&self) -> &TcpPlan {
        &self.flow.plan
    }

    pub(crate) fn view(&self) -> &Arc<TcpView> {
        &self.flow.view
    }

    /// Whether the thread of the end that sends most has ended; from then on, only replies to its
    /// data are sent.
    pub(crate) fn sender_has_ended(&self) -> bool {
        match self.flow.view.sends() {
            Side::Client => self.client.is_finished(),
            Side::Server => self.server.is_finished(),
        }
    }

    /// Whether a thread has ended before the flow, which happens only on errors.
    pub(crate) fn has_failed(&self) -> bool {
        let has_ended = self.client.is_finished() || self.server.is_finished();
        has_ended && self.flow.view.end().is_none()
    }

    /// Wait for both threads to end; return the flow.
    pub(crate) fn join(self) -> Result<Arc<Flow>, HostError> {
        join(self.client)?;
        join(self.server)?;
        Ok(self.flow)
    }
}

/// State shared by both threads of a flow.
pub(crate) struct Flow {
    pub(crate) plan: TcpPlan,
    pub(crate) view: Arc<TcpView>,
    /// Address that the server listens at.
    address: SocketAddrV4,
    listener: TcpListener,
    /// Numbers of connections that the server has not accepted yet, by client port.
    numbers: Mutex<HashMap<u16, u32>>,
    testbench: Testbench,
}

impl Flow {
    fn facts(&self) -> FlowFacts {
        FlowFacts { seed: self.plan.seed, start: self.plan.start, stop: self.plan.stop }
    }

    fn now(&self) -> Instant {
        self.testbench.clock.now()
    }

    fn is_over(&self, now: Instant) -> bool {
        self.testbench.stop.is_set() || self.view.has_ended() || now >= self.plan.stop
    }

    /// Wait until `until`, until the flow is over, or until one of `fds` is ready.
    fn wait<'fd>(
        &'fd self,
        until: Instant,
        fds: impl Iterator<Item = (BorrowedFd<'fd>, PollFlags)>,
    ) -> Result<(), HostError> {
        let Testbench { clock, stop, .. } = &self.testbench;
        let completion = (self.view.completion().as_fd(), PollFlags::POLLIN);
        wait(*clock, until.min(self.plan.stop), stop, fds.chain([completion]))
    }

    /// Reader of the application at `side`; rate-limited only at the side that receives most.
    fn reader(&self, side: Side) -> Reader {
        let receives = side == self.plan.app.sends().other();
        Reader::new(self.plan.app.read_rate().filter(|_| receives))
    }

    /// Take the transactions and the completion from an application.
    fn collect(&self, now: Instant, app: &mut dyn Application) -> Result<(), HostError> {
        self.view.add_results(app.take_results(now));
        app.completed().map_or(Ok(()), |at| self.view.complete(at))
    }

    /// End the flow at `side` and close its open `connections`. `broken` is the reason of an early end.
    fn finish(
        &self,
        side: Side,
        connections: Vec<Connection>,
        broken: Option<String>,
    ) -> Result<(), HostError> {
        let now = self.now().min(self.plan.stop);
        if now >= self.plan.start {
            self.view.conclude(now, broken)?;
        }
        if side != self.view.sends() {
            return self.discard_remaining(side, connections);
        }
        for connection in connections {
            // Connections of incomplete flows are reset, so that their queued data does not compete
            // with later flows.
            if self.view.is_complete() {
                connection.deliver_when_closed()?;
            }
            self.view.closed(side, &connection)?;
        }
        Ok(())
    }

    /// Receive and discard data that is still in flight, so that the kernel does not answer it with a reset. In the
    /// view the connections stay open until their packets have been counted.
    fn discard_remaining(&self, side: Side, connections: Vec<Connection>) -> Result<(), HostError> {
        let (connecting, mut connections): (Vec<_>, Vec<_>) =
            connections.into_iter().partition(Connection::is_connecting);
        connecting.iter().try_for_each(|connection| self.view.closed(side, connection))?;
        drop(connecting);
        while !self.testbench.close.is_set() {
            connections.retain(Connection::discards_more);
            let readable = connections.iter().map(|one| (one.socket().as_fd(), PollFlags::POLLIN));
            wait(self.testbench.clock, Instant::NEVER, &self.testbench.close, readable)?;
        }
        Ok(())
    }

    /// Remove and return the number of the connection whose client has this port.
    fn number_of(&self, port: u16) -> Option<u32> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).remove(&port)
    }
}
