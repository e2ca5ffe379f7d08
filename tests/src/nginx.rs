//! Debian's nginx, which ends with the test, its workers too.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::program::Program;

/// An nginx in the foreground that logs to stderr from `notice` on.
#[derive(Debug)]
pub struct Nginx {
    /// Taken when it ends.
    program: Option<Program>,
    workers: Vec<Pid>,
}

impl Nginx {
    /// Starts it by a command line such as `nginx -p . -c nginx.conf`; returns once its workers are there.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(command: Command) -> Nginx {
        let mut program = Program::spawn(command);
        // The line is logged before the fork, the next one by the worker itself would be a debug line: its parent knows.
        program.line("start worker process");
        let mut nginx = Nginx { program: Some(program), workers: Vec::new() };
        while nginx.workers.is_empty() {
            assert!(nginx.program.as_mut().is_some_and(Program::is_running), "nginx has ended");
            nginx.workers = nginx.children();
        }
        nginx
    }

    /// Ends it in order, and returns when neither master nor worker is left.
    ///
    /// # Panics
    /// Where one is.
    pub fn stop(mut self) {
        self.end();
        for worker in &self.workers {
            assert!(!is_nginx(*worker), "the worker {worker} outlived its master");
        }
    }

    fn end(&mut self) {
        if let Some(program) = self.program.take() {
            // Killed outright, it would leave its workers behind. It waits for them, and they hold the pipe.
            program.signal(Signal::SIGTERM);
            program.end();
        }
    }

    fn children(&self) -> Vec<Pid> {
        let Some(program) = &self.program else { return Vec::new() };
        let master = program.pid();
        let listed = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
        listed.split_whitespace().filter_map(|id| id.parse().ok()).map(Pid::from_raw).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_nginx(id: Pid) -> bool {
    fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "nginx")
}
