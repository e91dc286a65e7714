//! The end that is connected to: an application for each connection, of which several may overlap.

use std::io::ErrorKind;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{self, Backlog, SockaddrIn};
use skyhop_app::{Action, Application, Event, Kind as _, Side};
use skyhop_host::clock::wake_precisely;
use skyhop_host::error::{Context, HostError};
use skyhop_units::Instant;

use super::connection::{Connection, Zeros};
use super::{Flow, TcpPlan, options};

/// A socket of the calling thread's namespace that listens for the flow's connections.
pub(super) fn listen(plan: &TcpPlan, address: SocketAddrV4) -> Result<TcpListener, HostError> {
    let socket = options::open(plan, Side::Server)?;
    socket::bind(socket.as_raw_fd(), &SockaddrIn::from(address))
        .and_then(|()| socket::listen(&socket, Backlog::MAXCONN))
        .context("cannot bind a flow's listening socket")?;
    Ok(TcpListener::from(socket))
}

/// Does what the servers' applications ask for until the flow's end.
pub(super) fn run(flow: &Flow) -> Result<(), HostError> {
    wake_precisely()?;
    let mut server = Server { flow, served: Vec::new(), zeros: Zeros::default() };
    loop {
        server.accept()?;
        let now = flow.now();
        if flow.is_over(now) {
            break;
        }
        let until = server.turn(now)?;
        let pending = (flow.listener.as_fd(), PollFlags::POLLIN);
        let connections = server.served.iter().filter_map(|one| one.connection.awaits(now));
        flow.wait(until, connections.chain([pending]))?;
    }
    let connections = server.served.into_iter().map(|one| one.connection).collect();
    flow.finish(Side::Server, connections, None)
}

struct Server<'f> {
    flow: &'f Flow,
    served: Vec<Served>,
    zeros: Zeros,
}

/// A connection with its application.
struct Served {
    connection: Connection,
    app: Box<dyn Application>,
}

impl Server<'_> {
    /// Accepts all connections that are waiting for it.
    fn accept(&mut self) -> Result<(), HostError> {
        loop {
            match self.flow.listener.accept() {
                Ok((accepted, from)) => {
                    accepted.set_nonblocking(true).context("cannot set up a flow's connection")?;
                    self.serve(accepted.into(), from.port())?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).context("cannot accept a flow's connection"),
            }
        }
    }

    fn serve(&mut self, socket: OwnedFd, port: u16) -> Result<(), HostError> {
        let flow = self.flow;
        // What has no number is nobody's.
        let Some(number) = flow.number_of(port) else { return Ok(()) };
        options::batch_reads(&flow.plan, Side::Server, &socket)?;
        let connection = Connection::there(Arc::new(socket), flow.reader(Side::Server));
        flow.view.opened(Side::Server, &connection);
        self.served.push(Served { connection, app: flow.plan.app.server(&flow.facts(), number) });
        Ok(())
    }

    /// Lets each application do what it wants; returns when one wants to be asked again.
    fn turn(&mut self, now: Instant) -> Result<Instant, HostError> {
        let (mut until, mut index) = (Instant::NEVER, 0);
        while let Some(one) = self.served.get_mut(index) {
            let next = one.turn(now, &self.zeros);
            self.flow.collect(now, &mut *one.app)?;
            if let Some(next) = next {
                until = until.min(next);
                index += 1;
            } else {
                let gone = self.served.remove(index);
                gone.connection.deliver_when_closed()?;
                self.flow.view.closed(Side::Server, &gone.connection)?;
            }
        }
        Ok(until)
    }
}

impl Served {
    /// Returns when it wants to be asked again; `None`: never, it is over or lost.
    fn turn(&mut self, now: Instant, zeros: &Zeros) -> Option<Instant> {
        let done = self.look_and_act(now).and_then(|until| {
            self.connection.write(zeros)?;
            Ok(until)
        });
        match done {
            Ok(until) if self.is_over(until) => None,
            Ok(until) => Some(until.min(self.connection.next(now))),
            Err(_) => {
                self.app.on_event(now, Event::Lost);
                None
            }
        }
    }

    fn look_and_act(&mut self, now: Instant) -> Result<Instant, Errno> {
        let event = self.connection.look(now)?;
        event.into_iter().for_each(|event| self.app.on_event(now, event));
        loop {
            match self.app.poll(now) {
                Action::Wait(until) => return Ok(until),
                action => self.connection.ask(action),
            }
        }
    }

    /// Whether neither end has more to send.
    fn is_over(&self, until: Instant) -> bool {
        let says_no_more = until == Instant::NEVER && !self.connection.has_unwritten();
        let has_all = self.connection.received_whole().is_some();
        self.connection.is_over() || (has_all && says_no_more)
    }
}
