declare module '*.svg' {
  const address: string;
  // oxlint-disable-next-line import/no-default-export -- this is how Vite gives the address of a file.
  export default address;
}
