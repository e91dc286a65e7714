//! Applications over TCP: a thread for each of a flow's two ends, which does on sockets what the
//! application there asks for, and tells it what happens.
//!
//! The client's end is at the flow's `from`. Which of both sends most is the application's affair; that
//! end takes the flow's last sample, and resets what is still open when the flow's time is over.

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
use skyhop_app::{App, Application, FlowFacts, Kind as _, Reader, Side, TcpOptions};
use skyhop_host::clock::wait;
use skyhop_host::error::HostError;
use skyhop_host::frame::FIRST_PORT;
use skyhop_host::thread::{Worker, join, spawn};
use skyhop_model::{Dscp, End};
use skyhop_units::Instant;

use self::connection::Connection;
pub(crate) use self::options::check as check_options;
pub(crate) use self::view::{TcpEnd, TcpView};
use super::{Addresses, Stage};

/// One flow.
#[derive(Debug, Clone)]
pub(crate) struct TcpPlan {
    pub(crate) id: u32,
    /// Its place among all of the run's own traffic, which gives it its port.
    pub(crate) index: usize,
    /// Where the client is.
    pub(crate) from: End,
    pub(crate) start: Instant,
    pub(crate) stop: Instant,
    /// As the scenario calls it.
    pub(crate) cc: String,
    /// As the kernel calls it.
    pub(crate) kernel_cc: String,
    pub(crate) app: App,
    pub(crate) options: TcpOptions,
    pub(crate) dscp: Dscp,
    /// Of what the application draws.
    pub(crate) seed: u64,
    pub(crate) addresses: Addresses,
}

/// A flow at work.
pub(crate) struct RunningTcp {
    flow: Arc<Flow>,
    client: Worker<()>,
    server: Worker<()>,
}

impl RunningTcp {
    pub(crate) fn start(plan: TcpPlan, stage: &Stage) -> Result<Self, HostError> {
        let far = plan.from.other();
        let address = SocketAddrV4::new(plan.addresses.of(far), FIRST_PORT + plan.index as u16);
        let listener = stage.namespace(far).inside(|| server::listen(&plan, address))?;
        let view = Arc::new(TcpView::new(plan.app.sends())?);
        let (stage, numbers) = (stage.clone(), Mutex::default());
        let flow = Arc::new(Flow { plan, address, listener, numbers, view, stage });
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

    /// Whether the end that sends most has ended: what is still to come are answers to what it sent.
    pub(crate) fn sender_has_ended(&self) -> bool {
        match self.flow.view.sends() {
            Side::Client => self.client.is_finished(),
            Side::Server => self.server.is_finished(),
        }
    }

    /// Whether a thread has ended before the flow has, which it does on errors only.
    pub(crate) fn has_failed(&self) -> bool {
        let has_ended = self.client.is_finished() || self.server.is_finished();
        has_ended && self.flow.view.end().is_none()
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> Result<Arc<Flow>, HostError> {
        join(self.client)?;
        join(self.server)?;
        Ok(self.flow)
    }
}

/// What both threads of a flow know.
pub(crate) struct Flow {
    pub(crate) plan: TcpPlan,
    pub(crate) view: Arc<TcpView>,
    /// Where the server listens.
    address: SocketAddrV4,
    listener: TcpListener,
    /// The numbers of connections that the server has not seen yet, by the client's port.
    numbers: Mutex<HashMap<u16, u32>>,
    stage: Stage,
}

impl Flow {
    fn facts(&self) -> FlowFacts {
        FlowFacts { seed: self.plan.seed, start: self.plan.start, stop: self.plan.stop }
    }

    fn now(&self) -> Instant {
        self.stage.clock.now()
    }

    fn is_over(&self, now: Instant) -> bool {
        self.stage.stop.is_set() || self.view.has_ended() || now >= self.plan.stop
    }

    /// Waits until `until`, until the flow is over, or until one of `fds` is ready.
    fn wait<'fd>(
        &'fd self,
        until: Instant,
        fds: impl Iterator<Item = (BorrowedFd<'fd>, PollFlags)>,
    ) -> Result<(), HostError> {
        let Stage { clock, stop, .. } = &self.stage;
        let completion = (self.view.completion().as_fd(), PollFlags::POLLIN);
        wait(*clock, until.min(self.plan.stop), stop, fds.chain([completion]))
    }

    /// How the application at `side` reads.
    fn reader(&self, side: Side) -> Reader {
        let receives = side == self.plan.app.sends().other();
        Reader::new(self.plan.app.read_rate().filter(|_| receives))
    }

    /// Hands over what an application has found.
    fn collect(&self, now: Instant, app: &mut dyn Application) -> Result<(), HostError> {
        self.view.add_results(app.take_results(now));
        app.completed().map_or(Ok(()), |at| self.view.complete(at))
    }

    /// Ends the flow at `side`, where these connections are open. `broken`: why before its time.
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
            return self.run_dry(side, connections);
        }
        for connection in connections {
            // What is still in the socket of others shall not trail into the next flow's time.
            if self.view.is_complete() {
                connection.deliver_when_closed()?;
            }
            self.view.closed(side, &connection)?;
        }
        Ok(())
    }

    /// Reads what is still on its way, so that nothing is answered with a reset. What is open at the end
    /// stays so in the view, until packets have been counted.
    fn run_dry(&self, side: Side, connections: Vec<Connection>) -> Result<(), HostError> {
        let (connecting, mut connections): (Vec<_>, Vec<_>) =
            connections.into_iter().partition(Connection::is_connecting);
        connecting.iter().try_for_each(|connection| self.view.closed(side, connection))?;
        drop(connecting);
        while !self.stage.close.is_set() {
            connections.retain(Connection::discards_more);
            let readable = connections.iter().map(|one| (one.socket().as_fd(), PollFlags::POLLIN));
            wait(self.stage.clock, Instant::NEVER, &self.stage.close, readable)?;
        }
        Ok(())
    }

    /// The number of the client's connection from this port, for the server.
    fn number_of(&self, port: u16) -> Option<u32> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).remove(&port)
    }
}
