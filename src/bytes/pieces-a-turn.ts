/**
 * After so many pieces of one source the rest waits for the next turn of the event loop. Node and undici read on as long as
 * something comes, up to 2 MB in a turn; pieces of a byte take some hundred times their size until they have gone on.
 */
export const PIECES_A_TURN = 512;
