// The built-in policy heads in AssemblyScript: the same answers, to the byte.
// policies/heads says what they are.
export { kvferry_arena } from "../../assembly";
export { kvferry_remap } from "./remap";
export { kvferry_select_layout } from "./select";
