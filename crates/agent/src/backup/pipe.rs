//! What arrives piece by piece, for code that reads: encryption and tar know files only. The two ends
//! are in different threads, and neither runs ahead of the other.

use std::io::{self, Read};

use axum::body::Bytes;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

/// How many pieces wait; one is 8 to 64 KiB, or what the store gives.
const WAITING: usize = 4;

/// The end that is read, by a thread that may wait.
pub(super) struct Reader {
    pieces: mpsc::Receiver<Option<Bytes>>,
    rest: Bytes,
    is_over: bool,
}

/// The end that is filled.
pub(super) struct Inlet(mpsc::Sender<Option<Bytes>>);

/// The two ends.
pub(super) fn pipe() -> (Inlet, Reader) {
    let (sender, pieces) = mpsc::channel(WAITING);
    let reader = Reader {
        pieces,
        rest: Bytes::new(),
        is_over: false,
    };
    (Inlet(sender), reader)
}

impl Inlet {
    /// Passes on all that comes. Ends early where nobody reads any more, or with the error of what was to
    /// come: then the reader fails as well.
    pub(super) async fn fill<E>(
        self,
        mut pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<(), E> {
        while let Some(piece) = pieces.next().await {
            if self.0.send(Some(piece?)).await.is_err() {
                return Ok(());
            }
        }
        // Who does not read does not need to know.
        let _ = self.0.send(None).await;
        Ok(())
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && !self.is_over {
            match self.pieces.blocking_recv() {
                Some(Some(piece)) => self.rest = piece,
                Some(None) => self.is_over = true,
                None => {
                    let why = "it broke off";
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
                }
            }
        }
        let read = self.rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&self.rest.split_to(read));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(
        pieces: Vec<Result<Bytes, &'static str>>,
    ) -> (Result<(), &'static str>, io::Result<String>) {
        let (inlet, mut reader) = pipe();
        let reading = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        let filled = inlet.fill(futures::stream::iter(pieces)).await;
        (filled, reading.await.unwrap())
    }

    #[tokio::test]
    async fn the_end_is_told_from_what_broke_off() {
        let piece = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let (filled, text) = read(vec![piece("hel"), piece(""), piece("lo")]).await;
        assert_eq!((filled, text.unwrap().as_str()), (Ok(()), "hello"));
        let (filled, text) = read(vec![piece("hel"), Err("gone")]).await;
        assert_eq!(filled, Err("gone"));
        assert_eq!(text.unwrap_err().to_string(), "it broke off");
    }
}
